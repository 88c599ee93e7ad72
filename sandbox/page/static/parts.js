// The parts of the page: a list of messages, a message, the form to write one, and what is behind the glass.
import { Component } from "./vendor/preact.js";
import { bytes, html, markdown, name, when } from "./text.js";

const EMOJI = ["👍", "❤️", "🎉", "😄", "👀"];
const FIRST_BYTES = 65536;
const MOST_BYTES = 1 << 20; // a browser lays out no more text than that while somebody waits

export const recipients = (message) => [...(message.to ?? []), ...(message.add_to ?? []).flatMap((batch) => batch.to)];

const people = (addresses) => addresses.map((address, at) => html`${at ? ", " : ""}<bdi>${name(address)}</bdi>`);

export function List({ shown, messages, folder, unread, open, topic, onOpen, onFolder, onWrite, onMore, more }) {
  return html`<section class=${`list ${shown}`} aria-label="Messages">
    <div class="tabs">
      ${["inbox", "sent"].map(
        (one) => html`<button aria-current=${one === folder ? "page" : null} onClick=${() => onFolder(one)}>
          ${one === "inbox" ? `Inbox${unread ? ` (${unread})` : ""}` : "Sent"}
        </button>`,
      )}
      <button class="main" onClick=${onWrite}>Write</button>
    </div>
    <ul>
      ${messages.map(
        (message) => html`<li key=${message.id} class=${folder === "inbox" && !message.read ? "unread" : ""}>
          <button aria-current=${open === message.id ? "true" : null} onClick=${() => onOpen(message.id)}>
            <span class="line">
              <bdi class="from clip">${name(folder === "inbox" ? message.from : recipients(message).join(", "))}</bdi>
              <small>${when(message.time)}</small>
            </span>
            <bdi class="topic clip">${name(topic(message.id))}</bdi>
            <bdi class="clip muted">${name((message.short_text ?? message.type).slice(0, 160).replace(/\s+/g, " "))}</bdi>
            ${folder === "inbox" && !message.read ? html`<span class="offscreen">unread</span>` : null}
          </button>
        </li>`,
      )}
    </ul>
    ${messages.length ? null : html`<p class="empty">Nothing here yet.</p>`}
    ${more ? html`<p class="row"><button onClick=${onMore}>Older messages</button></p>` : null}
  </section>`;
}

class Body extends Component {
  state = { limit: FIRST_BYTES };

  componentDidMount() {
    this.load();
  }

  async load(limit = this.state.limit) {
    const { api, message } = this.props;
    const whole = !message.deflate && message.short_text !== undefined;
    const enough = whole && new TextEncoder().encode(message.short_text).length >= message.size;
    try {
      const got = enough ? { text: message.short_text, more: false } : await api.text(message.id, message.type, limit);
      this.setState({ ...got, limit, error: null });
    } catch (error) {
      this.setState({ error: String(error.message ?? error) });
    }
  }

  render({ api, message }, { text, more, limit, error }) {
    if (error) return html`<p class="error">The body could not be loaded: ${error}</p>`;
    if (text === undefined) return html`<p class="muted">Loading …</p>`;
    const rich = /^text\/markdown\b/i.test(message.type) && !more;
    return html`${rich
      ? html`<div class="body" dir="auto">${markdown(text)}</div>`
      : html`<div class="body text" dir="auto">${text}</div>`}
    ${more
      ? html`<p class="row">
          <small>These are the first ${bytes(limit)}.</small>
          ${limit < MOST_BYTES ? html`<button onClick=${() => this.load(Math.min(limit * 4, MOST_BYTES))}>Show more</button>` : null}
          <button onClick=${() => save(api, `/${message.id}/data`, `message-${message.id}.txt`)}>Download all of it</button>
        </p>`
      : null}`;
  }
}

const isText = (type) => /^text\/|^application\/json\b|\+json\b/i.test(type ?? "");

export async function save(api, path, filename) {
  const url = URL.createObjectURL(await api.blob(path));
  const link = document.createElement("a");
  link.href = url;
  link.download = filename;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}

function Delivery({ message, codes }) {
  const all = [...(message.to_delivery ?? []), ...(message.add_to ?? []).flatMap((batch) => batch.to_delivery ?? [])];
  if (!all.length) return null;
  const said = ({ time_delivered, response_code: code }) => {
    if (time_delivered) return ["good", "delivered"];
    if (code === null || code === 0 || code === 200) return ["warn", "pending"];
    return [code < 0 ? "warn" : "bad", `${codes[code] ?? "refused"} (${code})`];
  };
  return html`<details>
    <summary><small>Delivery</small></summary>
    <table><tbody>
      ${all.map((one) => {
        const [kind, text] = said(one);
        return html`<tr><td><bdi>${name(one.addr)}</bdi></td><td class=${kind}>${text}</td></tr>`;
      })}
    </tbody></table>
  </details>`;
}

export class Message extends Component {
  state = {};

  run = async (job) => {
    this.setState({ error: null });
    try {
      await job();
    } catch (error) {
      this.setState({ error: String(error.message ?? error) });
    }
  };

  render({ api, message, me, codes, folded, actions }, { shown, error }) {
    const mine = message.from.toLowerCase() === me.toLowerCase();
    const open = shown ?? !folded;
    const own = (message.reactions ?? []).find(({ from }) => from.includes(me))?.emoji;
    const react = (emoji) => this.run(() => actions.react(message, emoji === own ? "" : emoji));
    const closed = message.no_reply || message.terminal;
    return html`<article id=${`message-${message.id}`} class=${`card message ${mine ? "mine" : ""}`} aria-label=${`Message from ${name(message.from)}`}>
      <div class="head">
        <span><bdi class="from">${name(message.from)}</bdi> <small>to ${people(recipients(message))}</small></span>
        <small>${message.important ? html`<strong class="warn">important</strong> ` : null}${when(message.time)}</small>
      </div>
      ${!open
        ? html`<button onClick=${() => this.setState({ shown: true })}>Show ${bytes(message.size)}</button>`
        : !message.size
          ? null
          : isText(message.type)
            ? html`<${Body} key=${message.id} api=${api} message=${message} />`
            : html`<p class="row"><small>${name(message.type)}, ${bytes(message.size)}</small>
                <button onClick=${() => this.run(() => save(api, `/${message.id}/data`, `message-${message.id}`))}>Download</button></p>`}
      ${message.attachments?.length
        ? html`<ul class="files" aria-label="Files">
            ${message.attachments.map(
              (file) => html`<li><button
                onClick=${() => this.run(() => save(api, `/${message.id}/attach/${encodeURIComponent(file.filename)}`, file.filename))}>
                📎 <bdi>${name(file.filename)}</bdi> <small>${bytes(file.size)}</small></button></li>`,
            )}
          </ul>`
        : null}
      <div class="row foot">
        ${(message.reactions ?? []).map(
          ({ emoji, from }) => html`<button aria-pressed=${emoji === own} title=${from.join(", ")} aria-label=${`${emoji} by ${from.join(", ")}`}
            onClick=${() => react(emoji)}>${emoji} ${from.length}</button>`,
        )}
        ${closed
          ? html`<small>${message.terminal ? "Nothing can be built on this message." : "No reply is wanted."}</small>`
          : html`<button onClick=${() => actions.reply(message, false)}>Reply</button>
            <button onClick=${() => actions.reply(message, true)}>Reply to all</button>
            <button onClick=${() => actions.add(message)}>Add people</button>`}
        ${message.terminal
          ? null
          : html`<details class="reacting"><summary><small>React</small></summary>
              <span class="row">${EMOJI.map((emoji) => html`<button aria-label=${`React with ${emoji}`} aria-pressed=${emoji === own} onClick=${() => react(emoji)}>${emoji}</button>`)}</span>
            </details>`}
        <${Delivery} message=${message} codes=${codes} />
      </div>
      ${error ? html`<p class="error" role="alert">${error}</p>` : null}
    </article>`;
  }
}

export class Write extends Component {
  state = { to: this.props.draft.to.join(", "), topic: "", text: "", markdown: false, files: [], over: false, busy: false };

  take = (list) => this.setState({ files: [...this.state.files, ...list], over: false });

  send = async (event) => {
    event.preventDefault();
    const { draft, api, onSent } = this.props;
    const { to, topic, text, files } = this.state;
    this.setState({ busy: true, error: null });
    try {
      const addresses = to.split(/[\s,;]+/).filter(Boolean);
      if (draft.add) await draft.add(addresses);
      else {
        const type = this.state.markdown ? "text/markdown;charset=UTF-8" : "text/plain;charset=UTF-8";
        const fields = { to: addresses, data: text, size: new TextEncoder().encode(text).length, type };
        await api.send(draft.pid ? { ...fields, pid: draft.pid } : { ...fields, topic }, files);
      }
      onSent();
    } catch (error) {
      this.setState({ busy: false, error: String(error.message ?? error) });
    }
  };

  render({ draft, onCancel }, { to, topic, text, files, over, busy, error }) {
    const set = (field) => (event) => this.setState({ [field]: event.target.value });
    const drag = (event, on) => {
      event.preventDefault();
      if (on !== over) this.setState({ over: on });
    };
    return html`<form class=${`card write ${over ? "over" : ""}`} onSubmit=${this.send} aria-label=${draft.title}
      onDragOver=${(event) => drag(event, true)} onDragLeave=${(event) => drag(event, false)}
      onDrop=${(event) => (event.preventDefault(), this.take(event.dataTransfer.files))}>
      <h2>${draft.title}</h2>
      <div><label for="to">To (@user@domain, several with commas)</label>
        <input id="to" type="text" list="addresses" required autocomplete="off" value=${to} onInput=${set("to")} /></div>
      ${draft.add
        ? null
        : html`${draft.pid ? null : html`<div><label for="topic">Topic</label><input id="topic" type="text" value=${topic} onInput=${set("topic")} /></div>`}
          <div><label for="text">Message</label><textarea id="text" rows="6" value=${text} onInput=${set("text")}></textarea></div>
          <label class="row"><input type="checkbox" checked=${this.state.markdown} onChange=${(event) => this.setState({ markdown: event.target.checked })} /> Markdown</label>
          <div><label for="files">Files: choose, or drop them here</label>
            <input id="files" type="file" multiple onChange=${(event) => (this.take(event.target.files), (event.target.value = ""))} />
            ${files.length
              ? html`<ul class="files">${files.map(
                  (file) => html`<li><button type="button" onClick=${() => this.setState({ files: files.filter((one) => one !== file) })}
                    aria-label=${`Remove ${name(file.name)}`}><bdi>${name(file.name)}</bdi> <small>${bytes(file.size)}</small> ×</button></li>`,
                )}</ul>`
              : null}</div>`}
      ${error ? html`<p class="error" role="alert">${error}</p>` : null}
      <div class="row"><button class="main" disabled=${busy}>${draft.add ? "Add" : "Send"}</button>
        <button type="button" onClick=${onCancel}>Cancel</button></div>
    </form>`;
  }
}

class Copy extends Component {
  render({ text }, { done }) {
    const copy = () => navigator.clipboard.writeText(text).then(() => this.setState({ done: true }), () => {});
    return html`<button onClick=${copy}>${done ? "Copied" : "Copy"}</button>`;
  }
}

export function Connect({ agent, keyOf, snippets, onKey, error }) {
  return html`<section>
    <p>Give your own agent the address <strong><bdi>${name(agent)}</bdi></strong>: make a key, then paste one of these.</p>
    <div class="row"><button class="main" onClick=${onKey}>Make a key</button></div>
    ${keyOf ? html`<div class="row"><code id="key">${keyOf}</code> <${Copy} key=${keyOf} text=${keyOf} /></div>` : null}
    ${error ? html`<p class="error" role="alert">${error}</p>` : null}
    ${snippets.map(
      (one, at) => html`<details key=${one.title} open=${at === 0}>
        <summary>${one.title}</summary>
        <p class="row spread"><small>Into ${one.where}. ${one.then}</small> <${Copy} key=${one.text} text=${one.text} /></p>
        <pre><code>${one.text}</code></pre>
      </details>`,
    )}
  </section>`;
}

const END = { message: "returned", timeout: "timed out", left: "the agent left", failed: "failed" };

function Wait({ wait, entries, now }) {
  const since = entries.find((entry) => entry.arrived_at_s >= wait.started_s - 0.001);
  const settling = wait.ended_s === null && since && wait.settle_s > 0 && now < since.arrived_at_s + wait.settle_s + 1;
  const took = (wait.ended_s ?? now) - wait.started_s;
  return html`<div class="wait">
    <div class="row spread">
      <span class=${`pill ${wait.ended_s === null ? "warn" : wait.outcome === "message" ? "good" : ""}`}>
        ${wait.ended_s !== null ? END[wait.outcome] ?? wait.outcome : settling ? "settling" : "waiting"}
      </span>
      <small>${when(wait.started_s, now)}, ${took.toFixed(1)} s of ${wait.timeout_s} s</small>
    </div>
    ${wait.ended_s === null
      ? html`<progress aria-label=${settling ? "Settle window" : "Wait"} max=${settling ? wait.settle_s : wait.timeout_s}
          value=${settling ? now - since.arrived_at_s : took}></progress>`
      : null}
    ${settling ? html`<small>Message ${since.id} came. The wait stays open ${wait.settle_s} s for what belongs to it.</small>` : null}
    ${wait.ids.length
      ? html`<small>Messages <span class="mono">${wait.ids.join(", ")}</span>${wait.again ? `, ${wait.again} of them marked as returned before` : ""}</small>`
      : null}
    ${wait.after_id ? html`<small>after_id <span class="mono">${wait.after_id}</span>${wait.transport ? `, ${wait.transport}` : ""}</small>` : null}
    ${wait.note ? html`<small class="warn">${wait.note}</small>` : null}
  </div>`;
}

export function Sees({ agent, seen, now }) {
  if (seen === undefined) return html`<p class="muted">Loading …</p>`;
  if (seen === null)
    return html`<p>Nobody can look into the agent of <bdi>${name(agent)}</bdi> from here: an agent connected over stdio keeps its
      ledger in its own process. <code>fmsg-mcpd demo --page</code> runs agents that one can look into.</p>`;
  const { feed, entries, waits, counts } = seen;
  return html`<section>
      <${Counts} counts=${counts} />
      <div class="row spread"><h3>Feed</h3>
        <span class=${`pill ${feed?.live ? "good" : feed ? "warn" : ""}`}>${feed ? feed.state : "nobody asked yet"}</span></div>
      ${feed?.error ? html`<p class="error">${feed.error}</p>` : null}
    </section>
    <section aria-label="Waits"><h3>Waits</h3>
      ${waits.length ? waits.map((wait) => html`<${Wait} key=${wait.number} wait=${wait} entries=${entries} now=${now} />`) : html`<p class="muted">No wait yet.</p>`}
    </section>
    <section><h3>Ledger: what arrived, newest first</h3>
      ${entries.length
        ? html`<table><thead><tr><th>Message</th><th>Arrived</th><th>By</th></tr></thead>
            <tbody>${[...entries].reverse().map((entry) => html`<tr key=${entry.id}><td class="mono">${entry.id}</td><td>${when(entry.arrived_at_s, now)}</td><td>${entry.source}</td></tr>`)}</tbody></table>`
        : html`<p class="muted">Empty.</p>`}
    </section>`;
}

export function Counts({ counts }) {
  if (!counts) return null;
  return html`<div class="counts" role="status" aria-label="Count">
    <div><b>${counts.sent}</b><small>sent</small></div>
    <div><b>${counts.returned}</b><small>returned</small></div>
    <div><b class=${counts.twice ? "bad" : ""}>${counts.twice}</b><small>twice${counts.marked ? ` (+${counts.marked} marked)` : ""}</small></div>
  </div>`;
}

export function Faults({ agent, faults, counts, strike, error, said }) {
  return html`<section>
    <p>Break something while messages are on their way to <bdi>${name(agent)}</bdi>, and count.</p>
    <${Counts} counts=${counts} />
    <div class="row"><button class="main" onClick=${() => strike("deliver")}>Send 10 messages</button></div>
    <div class="row">${faults.map(({ name: which, title }) => html`<button key=${which} onClick=${() => strike(which)}>${title}</button>`)}</div>
    <p role="status" class="muted">${said}</p>
    ${error ? html`<p class="error" role="alert">${error}</p>` : null}
  </section>`;
}
