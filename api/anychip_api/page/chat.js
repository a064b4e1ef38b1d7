// The conversation: what was said, sent whole each time, and the answer as it comes.

import { events, request } from "./server.js";

const find = (id) => document.getElementById(id);
const talk = find("talk");
const messages = [];
let running = null;

function show(role, text) {
  const element = document.createElement("div");
  element.className = `message ${role}`;
  element.textContent = text;
  talk.append(element);
  talk.scrollTop = talk.scrollHeight;
  return element;
}

function parameters() {
  const values = {};
  for (const input of find("parameters").querySelectorAll("input")) {
    if (input.value !== "") values[input.name] = Number(input.value);
  }
  return values;
}

function body() {
  const system = find("parameters").querySelector("[name=system]").value.trim();
  const opening = system ? [{ role: "system", content: system }] : [];
  return JSON.stringify({
    ...parameters(),
    messages: [...opening, ...messages],
    stream: true,
    stream_options: { include_usage: true },
  });
}

function setRunning(controller) {
  running = controller;
  find("stop").hidden = !controller;
  find("send").hidden = Boolean(controller);
  find("hint").textContent = controller ? "The model is answering." : "";
}

// Fills an element with thoughts and text as they come; keeps at the end unless the person has scrolled away.
class Answer {
  constructor(element) {
    this.element = element;
    this.text = "";
    this.thoughts = document.createElement("span");
    this.thoughts.className = "thinking";
    this.words = document.createElement("span");
    element.append(this.thoughts, this.words);
  }

  add(delta) {
    const follows = talk.scrollHeight - talk.scrollTop - talk.clientHeight < 40;
    this.thoughts.append(delta.reasoning_content ?? delta.reasoning ?? "");
    this.text += delta.content ?? "";
    this.words.append(delta.content ?? "");
    if (follows) talk.scrollTop = talk.scrollHeight;
  }

  note(text) {
    const small = document.createElement("small");
    small.textContent = text;
    this.element.append(small);
  }
}

async function stream(answer, signal) {
  const begin = performance.now();
  let first = 0;
  let usage = null;
  let reason = "";
  for await (const chunk of events(await request("v1/chat/completions", { method: "POST", body: body(), signal }))) {
    if (chunk.error) throw new Error(chunk.error.message);
    usage = chunk.usage ?? usage;
    for (const choice of chunk.choices) {
      first ||= performance.now();
      answer.add(choice.delta);
      reason = choice.finish_reason ?? reason;
    }
  }
  const seconds = (performance.now() - first) / 1000;
  const count = usage?.completion_tokens ?? 0;
  const rate = count > 1 && seconds > 0 ? `, ${(count / seconds).toFixed(1)} tokens/s` : "";
  const wait = Math.round(first - begin);
  answer.note(`${count} tokens${rate}, first after ${wait} ms${reason === "length" ? ", cut at the limit" : ""}`);
}

async function send() {
  const question = find("question").value.trim();
  if (!question || running) return;
  find("question").value = "";
  messages.push({ role: "user", content: question });
  show("user", question);
  const answer = new Answer(show("assistant", ""));
  const controller = new AbortController();
  setRunning(controller);
  try {
    await stream(answer, controller.signal);
  } catch (error) {
    if (error.name === "AbortError") {
      answer.note("stopped");
    } else {
      answer.element.classList.add("failed");
      answer.note(error.message);
    }
  }
  if (controller.dropped) return;
  setRunning(null);
  messages.push({ role: "assistant", content: answer.text });
}

function clear() {
  if (running) {
    running.dropped = true;
    running.abort();
    setRunning(null);
  }
  messages.length = 0;
  talk.replaceChildren();
}

export function startChat() {
  find("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  find("question").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      send();
    }
  });
  find("stop").addEventListener("click", () => running?.abort());
  find("clear").addEventListener("click", clear);
}
