// Two builds into the Python package: the studio's page, and the views alone as one module that
// notebooks and self-contained reports carry.
import { fileURLToPath } from "node:url";
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vitest/config";

const target = fileURLToPath(new URL("../src/shoal/studio/static", import.meta.url));

export default defineConfig(({ mode }) => ({
  plugins: [svelte()],
  base: "./",
  ...(mode === "test" ? { resolve: { conditions: ["browser"] } } : {}),
  test: { environment: "jsdom", include: ["test/**/*.test.ts"] },
  build:
    mode === "views"
      ? {
          outDir: target,
          emptyOutDir: false,
          lib: { entry: "src/widget.ts", formats: ["es"] as const, fileName: () => "views.js" },
        }
      : {
          outDir: target,
          emptyOutDir: true,
          rollupOptions: {
            input: { studio: "index.html", person: "person.html" },
            output: { entryFileNames: "[name].js", chunkFileNames: "shared.js", assetFileNames: "studio[extname]" },
          },
        },
}));
