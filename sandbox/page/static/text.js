// What others wrote, as text that cannot do anything: names, bodies, Markdown.
import { h } from "./vendor/preact.js";
import htm from "./vendor/htm.js";

export const html = htm.bind(h);

const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;

// A name or topic on one line. Characters that nobody sees, or that turn text around, are shown by their number.
export function name(text) {
  return String(text ?? "").replace(UNSEEN, (char) => `[U+${char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}]`);
}

export function bytes(count) {
  if (count < 1000) return `${count} B`;
  return count < 1e6 ? `${(count / 1e3).toFixed(1)} kB` : `${(count / 1e6).toFixed(1)} MB`;
}

export function when(seconds, now = Date.now() / 1000) {
  if (!seconds) return "";
  const date = new Date(seconds * 1000);
  const time = date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
  return now - seconds < 43200 ? time : `${date.toLocaleDateString()} ${time}`;
}

const INLINE =
  /(`+)(.+?)\1(?!`)|!\[([^\]]*)\]\(\s*<?([^)\s>]*)>?[^)]*\)|\[([^\]]+)\]\(\s*<?([^)\s>]*)>?[^)]*\)|\*\*(.+?)\*\*|__(.+?)__|\*([^*\s][^*]*)\*|~~(.+?)~~|(https?:\/\/[^\s<>")\]]+)/;

// A link only to where a person may want to go: no javascript:, no data:, no path of this host.
function link(target, label) {
  if (!/^(https?:\/\/|mailto:)/i.test(target)) return html`<span>${label} <small>(${name(target)})</small></span>`;
  return html`<a href=${target} target="_blank" rel="noopener noreferrer">${label}</a>`;
}

function inline(text, depth = 0) {
  const out = [];
  let rest = text;
  for (let found; depth < 6 && rest && (found = INLINE.exec(rest)); ) {
    out.push(rest.slice(0, found.index));
    const [all, , code, alt, image, label, target, strong, strong2, em, gone, bare] = found;
    const within = (part) => inline(part, depth + 1);
    if (code !== undefined) out.push(html`<code>${code.trim()}</code>`);
    else if (alt !== undefined) out.push(link(image, `[picture: ${name(alt) || "without a name"}]`)); // never loaded
    else if (label !== undefined) out.push(link(target, within(label)));
    else if (strong ?? strong2) out.push(html`<strong>${within(strong ?? strong2)}</strong>`);
    else if (em) out.push(html`<em>${within(em)}</em>`);
    else if (gone) out.push(html`<s>${within(gone)}</s>`);
    else out.push(link(bare, bare));
    rest = rest.slice(found.index + all.length);
  }
  out.push(rest);
  return out;
}

// Markdown as elements. HTML in it is text like any other.
export function markdown(text) {
  const lines = text.replace(/\r\n?/g, "\n").split("\n");
  const out = [];
  const take = (test) => {
    const got = [];
    while (lines.length && test(lines[0])) got.push(lines.shift());
    return got;
  };
  const special = /^\s*$|^ {0,3}(#{1,6}\s|>|([-*+]|\d{1,9}[.)])\s|(`{3,}|~{3,})|([-*_]\s*){3,}$)/;
  while (lines.length) {
    const line = lines[0];
    let found;
    if (/^\s*$/.test(line)) lines.shift();
    else if ((found = /^ {0,3}(`{3,}|~{3,})/.exec(line))) {
      lines.shift();
      const code = take((one) => !one.trim().startsWith(found[1]));
      lines.shift();
      out.push(html`<pre><code>${code.join("\n")}</code></pre>`);
    } else if ((found = /^ {0,3}(#{1,6})\s+(.*?)\s*#*$/.exec(line))) {
      lines.shift();
      out.push(h(found[1].length < 3 ? "h3" : "h4", null, inline(found[2])));
    } else if (/^ {0,3}(([-_*])\s*)(\2\s*){2,}$/.test(line)) {
      lines.shift();
      out.push(html`<hr />`);
    } else if (/^ {0,3}>/.test(line)) {
      const quoted = take((one) => /^ {0,3}>/.test(one)).map((one) => one.replace(/^ {0,3}> ?/, ""));
      out.push(html`<blockquote>${lineBreaks(quoted)}</blockquote>`);
    } else if ((found = /^ {0,3}([-*+]|\d{1,9}[.)])\s+/.exec(line))) {
      const items = [];
      for (const one of take((each) => /^ {0,3}([-*+]|\d{1,9}[.)])\s+/.test(each) || /^\s+\S/.test(each))) {
        if (/^ {0,3}([-*+]|\d{1,9}[.)])\s+/.test(one)) items.push([one.replace(/^ {0,3}([-*+]|\d{1,9}[.)])\s+/, "")]);
        else items[items.length - 1].push(one.trim());
      }
      const entries = items.map((item) => html`<li>${lineBreaks(item)}</li>`);
      out.push(/\d/.test(found[1]) ? html`<ol>${entries}</ol>` : html`<ul>${entries}</ul>`);
    } else {
      const first = lines.shift();
      out.push(html`<p>${lineBreaks([first, ...take((one) => !special.test(one))])}</p>`);
    }
  }
  return out;
}

function lineBreaks(lines) {
  return lines.map((line, at) => [at ? html`<br />` : null, inline(line)]);
}
