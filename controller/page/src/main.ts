// SPDX-License-Identifier: Apache-2.0
import "./styles/base.css";
import "./styles/parts.css";
import { mount } from "svelte";
import App from "./App.svelte";

const target = document.getElementById("page");
if (!target) throw new Error("index.html has no #page");
mount(App, { target });
