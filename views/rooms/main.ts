import { mount } from "svelte";
import App from "./App.svelte";
import "./studio.css";

const place = document.getElementById("app");
if (place !== null) {
  place.replaceChildren();
  mount(App, { target: place });
}
