// Node's openai against a server of anychip: `node use_openai.mjs BASE_URL`.
import assert from "node:assert";
import OpenAI from "openai";

const client = new OpenAI({ baseURL: `${process.argv[2]}/v1`, apiKey: "none", maxRetries: 0 });
const messages = [
  { role: "system", content: "Be short." },
  { role: "user", content: "What is the capital of France?" },
];
const asked = { model: "demo", messages, temperature: 0, max_tokens: 20 };

const answer = await client.chat.completions.create(asked);
const text = answer.choices[0].message.content;
assert.match(text, /Paris/);

let streamed = "";
for await (const chunk of await client.chat.completions.create({ ...asked, stream: true })) {
  streamed += chunk.choices[0]?.delta?.content ?? "";
}
assert.equal(streamed, text);

const response = await client.responses
  .stream({ model: "demo", input: messages[1].content, instructions: "Be short.", temperature: 0 })
  .finalResponse();
assert.equal(response.output_text, text);

const file = await client.files.create({
  file: new File([JSON.stringify({ custom_id: "a", method: "POST", url: "/v1/chat/completions", body: asked })], "in.jsonl"),
  purpose: "batch",
});
let batch = await client.batches.create({
  input_file_id: file.id, endpoint: "/v1/chat/completions", completion_window: "24h",
});
while (!["completed", "failed"].includes(batch.status)) {
  await new Promise((resolve) => setTimeout(resolve, 100));
  batch = await client.batches.retrieve(batch.id);
}
const result = JSON.parse(await (await client.files.content(batch.output_file_id)).text());
assert.equal(result.response.body.choices[0].message.content, text);

await assert.rejects(client.chat.completions.create({ ...asked, temperature: 9 }), OpenAI.BadRequestError);
