// SPDX-License-Identifier: Apache-2.0
import { vitePreprocess } from "@sveltejs/vite-plugin-svelte";

export default {
  preprocess: vitePreprocess({ script: true }),
  compilerOptions: { runes: true },
};
