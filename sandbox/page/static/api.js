// The Web API as this page uses it, the control surface, and the event socket.

// Ids have up to 63 bits, numbers here 53: they are kept as text, and written back as the digits they are.
function parse(text) {
  return JSON.parse(text.replace(/"(id|pid|batch_id|after_id)":\s*(\d+)/g, '"$1":"$2"'));
}

async function fault(answer) {
  const text = await answer.text();
  try {
    return JSON.parse(text).error || text;
  } catch {
    return text.slice(0, 300) || `status ${answer.status}`;
  }
}

async function json(path, fields) {
  const options = fields && { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(fields) };
  const answer = await fetch(path, options);
  if (!answer.ok) throw new Error(await fault(answer));
  return parse(await answer.text());
}

export const control = async (method, fields = {}) => (await json(`/_sandbox/${method}`, fields)).result;
export const page = (what, fields) => json(`/_sandbox/page/${what}`, fields);

export class Api {
  constructor(address) {
    this.address = address;
    this.token = null;
  }

  async signIn() {
    this.key ??= await control("create_key", { address: this.address });
    const answer = await fetch("/fmsg/token", { method: "POST", headers: { Authorization: `Bearer ${this.key}` } });
    if (!answer.ok) throw new Error(await fault(answer));
    this.token = (await answer.json()).access_token;
  }

  async ask(method, path, options = {}) {
    for (let again = false; ; again = true) {
      if (!this.token) await this.signIn();
      const headers = { Authorization: `Bearer ${this.token}`, ...options.headers };
      const answer = await fetch(`/fmsg${path}`, { ...options, method, headers });
      if (answer.status === 401 && !again) this.token = null;
      else if (!answer.ok) throw new Error(await fault(answer));
      else return answer;
    }
  }

  async get(path) {
    return parse(await (await this.ask("GET", path)).text());
  }

  async post(path, fields) {
    const body = fields && { headers: { "Content-Type": "application/json" }, body: JSON.stringify(fields) };
    return parse(await (await this.ask("POST", path, body)).text());
  }

  list(folder, offset = 0) {
    return this.get(`${folder === "sent" ? "/sent" : ""}?limit=100&offset=${offset}`);
  }

  async message(id) {
    return { id, ...(await this.get(`/${id}`)) };
  }

  // The first bytes of a body as text, and whether there are more.
  async text(id, type, limit) {
    const reader = (await this.ask("GET", `/${id}/data`)).body.getReader();
    const parts = [];
    let size = 0;
    let end = false;
    while (!end && size < limit) {
      const { done, value } = await reader.read();
      end = done;
      if (value) parts.push(value);
      size += value?.length ?? 0;
    }
    if (!end) reader.cancel().catch(() => {});
    const whole = new Uint8Array(await new Blob(parts).arrayBuffer());
    const charset = /charset="?([^";]+)/i.exec(type)?.[1] ?? "utf-8";
    let decoder;
    try {
      decoder = new TextDecoder(charset);
    } catch {
      decoder = new TextDecoder();
    }
    return { text: decoder.decode(whole.subarray(0, limit)), more: !end || size > limit };
  }

  async blob(path) {
    return (await this.ask("GET", path)).blob();
  }

  // A draft, its files, then the sending. A draft that cannot be sent is deleted.
  async send(fields, files) {
    const { id } = await this.post("", { version: 1, from: this.address, type: "text/plain;charset=UTF-8", ...fields });
    try {
      for (const file of files) {
        const form = new FormData();
        form.append("file", file, file.name);
        await this.ask("POST", `/${id}/attach`, { body: form });
      }
      await this.post(`/${id}/send`);
    } catch (error) {
      await this.ask("DELETE", `/${id}`).catch(() => {});
      throw error;
    }
    return id;
  }
}

const PATIENCE_MS = [500, 1000, 2000, 4000, 8000];
const LOOK_MS = 15000;

// Events of an address while somebody looks. The list is read again after each connection and now and then, because
// a socket promises neither that every event comes nor that it says when one did not.
export class Events {
  constructor(api, { state, event, look }) {
    this.api = api;
    this.tell = { state, event, look };
    this.tries = 0;
    this.ended = false;
    this.timer = setInterval(() => look(), LOOK_MS);
    this.connect();
  }

  async connect() {
    if (this.ended) return;
    this.tell.state("connecting");
    try {
      await this.api.get("?limit=1"); // renews a token that has ended
      if (this.ended) return;
      this.open();
    } catch {
      this.again();
    }
  }

  open() {
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    this.socket = new WebSocket(`${scheme}://${location.host}/fmsg/ws?access_token=${encodeURIComponent(this.api.token)}`);
    this.socket.onopen = () => {
      this.tries = 0;
      this.tell.state("live");
      this.tell.look();
    };
    this.socket.onmessage = ({ data }) => {
      const { type, data: message } = parse(data);
      this.tell.event(type, message);
    };
    this.socket.onclose = () => this.again();
  }

  again() {
    if (this.ended) return;
    this.tell.state("away");
    const wait = PATIENCE_MS[Math.min(this.tries++, PATIENCE_MS.length - 1)];
    this.retry = setTimeout(() => this.connect(), wait);
  }

  end() {
    this.ended = true;
    clearInterval(this.timer);
    clearTimeout(this.retry);
    this.socket?.close();
  }
}
