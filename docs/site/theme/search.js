// SPDX-License-Identifier: Apache-2.0
// The search takes "-" before a word for "without". Here it is the name of a flag, such as --metrics.
document.addEventListener(
  "keyup",
  (event) => {
    const input = event.target;
    if (input.name === "query" && /(^|\s)-/.test(input.value)) input.value = input.value.replace(/(^|\s)-+/g, "$1");
  },
  true,
);
