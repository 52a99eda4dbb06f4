// SPDX-License-Identifier: Apache-2.0
import { readFileSync } from "node:fs";
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig, type Plugin } from "vite";

/** What is part of the bundle and therefore shipped; their licences ask that their notices are shipped, too. */
const SHIPPED = ["svelte", "uplot", "smol-toml"];

function notices(): Plugin {
  return {
    name: "notices",
    generateBundle() {
      const texts = SHIPPED.map((name) => {
        const folder = `node_modules/${name}`;
        const { version, license } = JSON.parse(readFileSync(`${folder}/package.json`, "utf-8")) as Record<string, string>;
        const file = name === "svelte" ? "LICENSE.md" : "LICENSE";
        return `${name} ${version} (${license})\n\n${readFileSync(`${folder}/${file}`, "utf-8").trim()}\n`;
      });
      this.emitFile({ type: "asset", fileName: "licences.txt", source: texts.join(`\n${"-".repeat(80)}\n\n`) });
    },
  };
}

/** One icon for each count of alarms: a data URL would need an exception in the Content-Security-Policy. */
function icons(): Plugin {
  return {
    name: "icons",
    generateBundle() {
      for (let count = 0; count <= 10; count++) {
        const text = count > 9 ? "9+" : `${count}`;
        const badge = count
          ? `<rect x="10" y="10" width="22" height="22" rx="6" fill="#c62828"/>` +
            `<text x="21" y="27" font-family="sans-serif" font-weight="700" font-size="${count > 9 ? 14 : 17}"` +
            ` text-anchor="middle" fill="#fff">${text}</text>`
          : "";
        const source =
          `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><path d="M5 26 16 6l11 20" fill="none" ` +
          `stroke="#0f7b8a" stroke-width="4" stroke-linecap="round" stroke-linejoin="round"/>` +
          `<circle cx="16" cy="6" r="4" fill="#0f7b8a"/><circle cx="5" cy="26" r="4" fill="#0f7b8a"/>` +
          `<circle cx="27" cy="26" r="4" fill="#0f7b8a"/>${badge}</svg>`;
        this.emitFile({ type: "asset", fileName: `icons/${count}.svg`, source });
      }
    },
  };
}

export default defineConfig({
  base: "./",
  plugins: [svelte(), notices(), icons()],
  build: {
    outDir: "../src/gradlane_controller/page",
    emptyOutDir: true,
    target: "es2022",
    sourcemap: false,
    assetsInlineLimit: 0,
    modulePreload: false,
    reportCompressedSize: false,
  },
});
