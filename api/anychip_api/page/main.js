// Puts the page together: the chat, the charts, and what the server says of itself.

import { startCharts } from "./charts.js";
import { startChat } from "./chat.js";
import { request } from "./server.js";

const find = (id) => document.getElementById(id);
let summary = "";

function row(values) {
  const element = document.createElement("tr");
  for (const value of values) {
    const cell = document.createElement("td");
    cell.textContent = value;
    element.append(cell);
  }
  return element;
}

async function describe() {
  const info = await (await request("server_info")).json();
  const context = `${info.max_model_len} tokens of context`;
  summary = `${info.model} on ${info.device}, ${info.dtype}, ${context}, up to ${info.max_num_seqs} at once`;
  find("summary").textContent = summary;
  find("device").textContent = info.device;
  find("notes").textContent = info.notes.join("; ");
  find("ops").replaceChildren(...info.ops.map((one) => row([one.op, one.runs_by, one.reason])));
  if (!info.ops.length) find("ops").append(row(["This platform lists no ops.", "", ""]));
  if (!info.chat) find("hint").textContent = "This model has no chat template, so it can only complete text.";
}

startCharts((trouble) => {
  find("summary").textContent = trouble || summary;
});
startChat();
describe().catch((error) => {
  find("summary").textContent = error.message;
});
