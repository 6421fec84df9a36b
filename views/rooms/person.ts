import { mount } from "svelte";
import Person from "./Person.svelte";
import "./studio.css";

const place = document.getElementById("app");
if (place !== null) {
  place.replaceChildren();
  mount(Person, { target: place });
}
