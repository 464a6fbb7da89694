/**
 * How the page is built. React's place is taken by preact, which keeps the first view small. Nothing is inlined:
 * the page's Content-Security-Policy knows scripts and styles by their address only.
 */
import { defineConfig } from "vite";

export default defineConfig({
  base: "./", // the page may be mounted anywhere: the service fills in its <base>
  resolve: {
    alias: [
      { find: /^react\/jsx-(dev-)?runtime$/, replacement: "preact/jsx-runtime" },
      { find: /^react(-dom)?$/, replacement: "preact/compat" },
    ],
  },
  build: {
    target: "es2022",
    outDir: "../src/threadline/service/page",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    rolldownOptions: {
      checks: { pluginTimings: false },
      onLog: (level, log, next) => (log.code === "MODULE_LEVEL_DIRECTIVE" ? undefined : next(level, log)),
    },
  },
  server: { proxy: { "/api": "http://127.0.0.1:8300" } },
});
