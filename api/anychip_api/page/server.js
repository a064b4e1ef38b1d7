// Requests to the server this page came from, with the key that the person gave.

const KEY = "anychip-key";

function askForKey() {
  const dialog = document.getElementById("key-dialog");
  const input = document.getElementById("key");
  input.value = "";
  if (!dialog.open) dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      sessionStorage.setItem(KEY, input.value);
      resolve();
    }, { once: true });
  });
}

// A response that is not an error; asks for a key, and again, where one is wanted.
export async function request(path, options = {}) {
  for (;;) {
    const key = sessionStorage.getItem(KEY);
    const headers = { "content-type": "application/json", ...(key ? { authorization: `Bearer ${key}` } : {}) };
    const response = await fetch(new URL(path, document.baseURI), { ...options, headers });
    if (response.ok) return response;
    if (response.status === 401) {
      await askForKey();
      continue;
    }
    const text = await response.text();
    let message = text;
    try {
      message = JSON.parse(text).error.message;
    } catch {
      // not one of the server's own errors: shown as it is
    }
    throw new Error(message || `The server answered ${response.status}.`);
  }
}

// The data of each server-sent event of a response.
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (line.startsWith("data: ") && line !== "data: [DONE]") yield JSON.parse(line.slice(6));
    }
  }
}
