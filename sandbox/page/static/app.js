// The page: who somebody is, what they have, and what happens while they look.
import { Component, render } from "./vendor/preact.js";
import { Api, control, Events, page } from "./api.js";
import { Connect, Faults, List, Message, recipients, Sees, Write } from "./parts.js";
import { html, name } from "./text.js";

const LINK = { live: ["good", "live"], connecting: ["warn", "connecting"], away: ["bad", "not connected, trying again"] };
const WHOLE_THREAD = 20; // bodies shown at once
const LOOK_MS = 500;

const HOST_FAULTS = [
  { name: "drop", title: "Drop the sockets", do: () => control("drop_sockets"), said: "All event sockets were cut." },
  { name: "lose", title: "Lose 5 events", do: () => control("lose_events", { times: 5 }), said: "The next 5 events are lost silently." },
  { name: "delay", title: "Delay by 2 s", do: () => control("delay", { delay_s: 2 }), said: "Every request takes 2 s longer." },
  { name: "clear", title: "End the faults", do: () => control("clear_faults"), said: "The host works again." },
];

class App extends Component {
  state = {
    addresses: [], me: "", known: new Map(), inbox: new Set(), sent: new Set(), more: {}, folder: "inbox", open: null, draft: null,
    link: "connecting", tab: "agent", view: "list", about: { domain: "", codes: {}, faults: [] }, agent: "", snippets: [], keys: {},
    now: Date.now() / 1000, said: "", hidden: new Set(),
  };

  async componentDidMount() {
    addEventListener("hashchange", () => this.become(decodeURIComponent(location.hash.slice(1))));
    await this.attempt(async () => {
      const [about, addresses] = await Promise.all([page("about"), control("addresses")]);
      document.title = `${about.domain} · fmsg sandbox`;
      this.setState({ about, addresses });
      const wanted = decodeURIComponent(location.hash.slice(1)) || addresses[0];
      if (wanted) await this.become(wanted, addresses);
    });
    this.look();
  }

  attempt = async (job) => {
    try {
      await job();
      this.setState({ error: null });
    } catch (error) {
      this.setState({ error: String(error.message ?? error) });
    }
  };

  // Somebody else from now on.
  become = async (address, addresses = this.state.addresses) => {
    if (!address || address === this.state.me) return;
    this.events?.end();
    const api = (this.api = new Api(address));
    history.replaceState(null, "", `#${encodeURIComponent(address).replaceAll("%40", "@")}`);
    const agent = addresses.find((one) => one !== address) ?? address;
    this.setState({ me: address, known: new Map(), inbox: new Set(), sent: new Set(), open: null, draft: null, link: "connecting", error: null, hidden: new Set() });
    if (!this.state.agent || this.state.agent === address) this.watch(agent);
    await this.attempt(async () => {
      await api.signIn();
      if (api !== this.api) return;
      this.events = new Events(api, {
        state: (link) => api === this.api && this.setState({ link }),
        event: (type, message) => api === this.api && this.event(type, message),
        look: () => api === this.api && this.attempt(() => this.reload()),
      });
      await this.reload();
    });
  };

  async reload() {
    const api = this.api;
    const [inbox, sent] = await Promise.all([api.list("inbox"), api.list("sent")]);
    if (api !== this.api) return;
    this.keep({ inbox, sent });
    const more = { inbox: inbox.length === 100, sent: sent.length === 100 };
    this.setState({ more: { ...more, ...this.state.older } });
  }

  // Take messages over as the host has them now.
  keep({ inbox = [], sent = [], others = [] }) {
    this.setState((state) => {
      const known = new Map(state.known);
      for (const message of [...inbox, ...sent, ...others]) known.set(message.id, message);
      return {
        known,
        inbox: new Set([...state.inbox, ...inbox.map(({ id }) => id)]),
        sent: new Set([...state.sent, ...sent.map(({ id }) => id)]),
      };
    }, () => this.complete());
  }

  event(type, message) {
    const mine = message.from.toLowerCase() === this.state.me.toLowerCase();
    const received = recipients(message).some((address) => address.toLowerCase() === this.state.me.toLowerCase());
    this.keep({ inbox: received ? [message] : [], sent: mine ? [message] : [], others: [message] });
  }

  root(id) {
    for (let steps = 0; steps < 1000; steps++) {
      const pid = this.state.known.get(id)?.pid;
      if (!pid || this.state.hidden.has(pid)) return id;
      id = pid;
    }
    return id;
  }

  thread() {
    const { open, known } = this.state;
    if (!open) return [];
    const root = this.root(open);
    return [...known.values()]
      .filter((message) => message.time && message.reaction == null && this.root(message.id) === root)
      .sort((one, other) => one.time - other.time);
  }

  // The ancestors of the open message that the lists do not hold, and that it was read.
  complete = () => this.attempt(async () => {
    const { open, known, hidden } = this.state;
    if (!open) return;
    const missing = known.get(this.root(open)) ? null : this.root(open);
    if (missing && this.loading !== missing) {
      this.loading = missing;
      try {
        this.keep({ others: [await this.api.message(missing)] });
      } catch {
        this.setState({ hidden: new Set([...hidden, missing]) });
      }
    }
    for (const message of this.thread()) {
      if (message.read || !this.state.inbox.has(message.id)) continue;
      message.read = true;
      await this.api.post(`/${message.id}/read`);
    }
    this.setState({});
  });

  show = (id) => {
    this.loading = null;
    this.setState({ open: id, draft: null, view: "thread" }, () => {
      document.getElementById(`message-${id}`)?.scrollIntoView({ block: "nearest" });
      this.complete();
    });
  };

  // A thread that is read at its end stays at its end when something comes.
  getSnapshotBeforeUpdate() {
    const part = document.querySelector(".middle");
    return part && part.scrollHeight > part.clientHeight && part.scrollHeight - part.scrollTop - part.clientHeight < 80;
  }

  componentDidUpdate(_, before, atEnd) {
    const part = document.querySelector(".middle");
    if (atEnd && part && before.open === this.state.open && part.scrollHeight !== this.height) part.scrollTop = part.scrollHeight;
    this.height = part?.scrollHeight;
  }

  topic(id) {
    return this.state.known.get(this.root(id))?.topic || (this.state.known.get(id)?.has_pid ? "Reply" : "No topic");
  }

  older = () => this.attempt(async () => {
    const { folder } = this.state;
    const got = await this.api.list(folder, this.state[folder].size);
    this.keep({ [folder]: got });
    this.setState({ more: { ...this.state.more, [folder]: got.length === 100 }, older: { ...this.state.older, [folder]: got.length === 100 } });
  });

  write = (draft) => this.setState({ draft, view: "thread" }, () => {
    const form = document.querySelector(".write");
    form?.scrollIntoView({ block: "nearest" });
    form?.querySelector(draft.to.length ? "textarea" : "input")?.focus();
  });

  // Arrow keys go from tab to tab.
  turn = (event) => {
    const next = { ArrowRight: "nextElementSibling", ArrowLeft: "previousElementSibling" }[event.key];
    const tab = next && event.target[next];
    if (!tab) return;
    tab.focus();
    tab.click();
  };

  actions = {
    react: async (message, emoji) => {
      await this.api.post(`/${message.id}/react`, { emoji });
      this.keep({ others: [await this.api.message(message.id)] });
    },
    reply: (message, all) => {
      const me = this.state.me.toLowerCase();
      const mine = message.from.toLowerCase() === me;
      const wanted = all ? [message.from, ...recipients(message)] : mine ? message.to : [message.from];
      const to = [...new Map(wanted.map((address) => [address.toLowerCase(), address])).values()].filter((address) => address.toLowerCase() !== me);
      const batch = mine || (message.to ?? []).some((address) => address.toLowerCase() === me)
        ? null
        : (message.add_to ?? []).find((one) => one.to.some((address) => address.toLowerCase() === me));
      const pid = batch?.sha256 ?? message.sha256 ?? Number(message.id);
      this.write({ title: all ? "Reply to all" : "Reply", to: to.length ? to : [message.from], pid, key: `${message.id} ${all}` });
    },
    add: (message) => this.write({
      title: "Add people", to: [], key: `${message.id} add`,
      add: async (addresses) => {
        await this.api.post(`/${message.id}/add-to`, { add_to: addresses });
        this.keep({ others: [await this.api.message(message.id)] });
      },
    }),
  };

  newPerson = (event) => this.attempt(async () => {
    event.preventDefault();
    const wanted = new FormData(event.target).get("address").trim();
    const address = await control("create_address", { address: wanted.includes("@") ? wanted : `@${wanted}@${this.state.about.domain}` });
    this.setState({ addresses: await control("addresses"), naming: false });
    await this.become(address);
  });

  watch = (agent) => {
    this.setState({ agent, seen: undefined, snippets: [], said: "" });
    page("snippets", { address: agent, key: this.state.keys[agent] ?? "fmsgk_…" }).then((snippets) => this.setState({ snippets }), () => {});
  };

  makeKey = () => this.attempt(async () => {
    const { agent } = this.state;
    const key = await control("create_key", { address: agent });
    this.setState({ keys: { ...this.state.keys, [agent]: key }, snippets: await page("snippets", { address: agent, key }) });
  });

  strike = (which) => this.attempt(async () => {
    const { agent, about } = this.state;
    const own = HOST_FAULTS.find((one) => one.name === which);
    if (which === "deliver") {
      for (let number = 1; number <= 10; number++)
        await control("deliver", { from: "@stranger@elsewhere.test", to: [agent], topic: `Message ${number} of 10`, body: "Please ignore this message." });
      this.setState({ said: "10 messages were delivered." });
    } else if (own) {
      await own.do();
      this.setState({ said: own.said });
    } else {
      await page("strike", { name: which });
      this.setState({ said: `Done: ${about.faults.find((one) => one.name === which)?.title}.` });
    }
  });

  // What the agent sees, while somebody sees it.
  async look() {
    const { agent, tab } = this.state;
    if (agent && tab !== "connect" && !document.hidden) {
      try {
        const seen = await page(`look?address=${encodeURIComponent(agent)}`);
        if (agent === this.state.agent) this.setState({ seen });
      } catch {
        // The host is away. The header says so.
      }
    }
    this.setState({ now: Date.now() / 1000 });
    setTimeout(() => this.look(), this.state.seen === null ? 10 * LOOK_MS : LOOK_MS);
  }

  render(_, state) {
    const { about, addresses, agent, draft, error, folder, known, link, me, open, tab, view } = state;
    const real = (message) => message && message.time && message.reaction == null;
    const listed = [...state[folder]].map((id) => known.get(id)).filter(real).sort((one, other) => other.time - one.time);
    const unread = [...state.inbox].filter((id) => real(known.get(id)) && !known.get(id).read).length;
    const thread = this.thread();
    const topic = thread.length ? this.topic(open) : null;
    const [kind, text] = LINK[link];
    const faults = [...HOST_FAULTS, ...about.faults];
    const tabs = { agent: "What it sees", connect: "Connect yours", faults: "Faults" };
    const shown = (which) => (view === which ? "shown" : "");
    const choose = (current, pick) => html`${[...new Set([...addresses, current])].filter(Boolean).map((one) => html`<option value=${one} selected=${one === current}>${name(one)}</option>`)}`;
    return html`<main class="inbox">
      <p class="notice">This is a sandbox host for trying things out. Everybody who opens this page can be anybody on it.</p>
      <header>
        <h1>${about.domain}</h1>
        <div class="row">
          <label class="offscreen" for="me">You are</label>
          <select id="me" value=${me} onChange=${(event) => this.become(event.target.value)}>${choose(me)}</select>
        </div>
        ${state.naming
          ? html`<form class="row" onSubmit=${this.newPerson}>
              <label class="offscreen" for="new">Name of the new address</label>
              <input id="new" type="text" name="address" required placeholder="carla" autocomplete="off" />
              <button class="main">Make it</button></form>`
          : html`<button onClick=${() => this.setState({ naming: true }, () => document.getElementById("new")?.focus())}>New address</button>`}
        <span class=${`pill ${kind}`} role="status" aria-label="Connection">${text}</span>
        ${error ? html`<span class="error" role="alert">${error}</span>` : null}
      </header>
      <datalist id="addresses">${addresses.map((one) => html`<option value=${one}></option>`)}</datalist>
      <${List} shown=${shown("list")} messages=${listed} folder=${folder} unread=${unread} open=${open} more=${state.more[folder]} onOpen=${this.show} onMore=${this.older} topic=${(id) => this.topic(id)}
        onFolder=${(one) => this.setState({ folder: one })} onWrite=${() => this.write({ title: "Write", to: [], key: "new" })} />
      <section class=${`middle ${shown("thread")}`} aria-label="Thread"><div class="thread">
        ${topic ? html`<h2><bdi>${name(topic)}</bdi></h2>` : null}
        ${[...state.hidden].includes(known.get(thread[0]?.id)?.pid) ? html`<p class="muted">What was before is not visible to you.</p>` : null}
        ${thread.map((message, at) => html`<${Message} key=${message.id} api=${this.api} message=${message} me=${me} codes=${about.codes}
          folded=${thread.length - at > WHOLE_THREAD} actions=${this.actions} />`)}
        ${draft
          ? html`<${Write} key=${draft.key} api=${this.api} draft=${draft} onCancel=${() => this.setState({ draft: null })}
              onSent=${() => (this.setState({ draft: null }), this.attempt(() => this.reload()))} />`
          : thread.length ? null : html`<p class="empty">Choose a message, or write one to an agent's address and watch it answer.</p>`}
      </div></section>
      <section class=${`behind stack ${shown("behind")}`} aria-label="Behind the glass">
        <div class="tabs" role="tablist" aria-label="Behind the glass" onKeyDown=${this.turn}>
          ${Object.entries(tabs).map(([which, title]) => html`<button role="tab" aria-selected=${which === tab} tabindex=${which === tab ? 0 : -1} onClick=${() => this.setState({ tab: which })}>${title}</button>`)}
        </div>
        <div><label for="agent">Agent</label>
          <select id="agent" value=${agent} onChange=${(event) => this.watch(event.target.value)}>${choose(agent)}</select></div>
        ${tab === "agent" ? html`<${Sees} agent=${agent} seen=${state.seen} now=${state.now} />` : null}
        ${tab === "connect" ? html`<${Connect} agent=${agent} keyOf=${state.keys[agent]} snippets=${state.snippets} onKey=${this.makeKey} />` : null}
        ${tab === "faults" ? html`<${Faults} agent=${agent} faults=${faults} counts=${state.seen?.counts} strike=${this.strike} said=${state.said} />` : null}
      </section>
      <nav class="phone" aria-label="Parts of the page">
        ${[["list", "Messages"], ["thread", "Thread"], ["behind", "Agent"]].map(([which, title]) => html`<button aria-current=${view === which ? "page" : null} onClick=${() => this.setState({ view: which })}>${title}</button>`)}
      </nav>
    </main>`;
  }
}

render(html`<${App} />`, document.getElementById("page"));
