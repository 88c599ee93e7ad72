"""FMSG-007 v0.1.0, MCP Binding: every MUST and SHOULD, paraphrased, in the order of the standard."""

from __future__ import annotations

from tests.contract.requirement import Requirement as R

_PROFILES = "Deployment Profiles"
_STDIO = "stdio Profile"
_HTTP = "Streamable HTTP Profile"
_REFERENCES = "Message References"
_RESOURCES = "Resources"
_TOOLS = "Tools"
_CORE = "Core tools"
_RECOMMENDED = "Recommended tools"
_RULES = "Behavioural Rules"
_SAFETY = "Safety Requirements"
_PROMPTS = "Prompts"
_INTEROP = "Minimum interoperability test"
_SECURITY = "Security Considerations"
_HOUSE = "tests/contract/test_interop.py::test_the_seven_steps_hold_over_http"

FMSG_007: tuple[R, ...] = (
    R("profiles.stdio", _PROFILES, "MUST", "The stdio profile is supported."),
    R(
        "profiles.exchange",
        _PROFILES,
        "MUST",
        "Web API requests carry a bearer token that the caller's API key was exchanged for, renewed before it expires.",
    ),
    R("stdio.one_caller", _STDIO, "MUST", "One process acts as one caller for its lifetime."),
    R(
        "stdio.variables",
        _STDIO,
        "MUST",
        "FMSG_API_URL, FMSG_API_KEY, FMSG_DEFAULT_DOMAIN and FMSG_DIRECTORY are read from the environment.",
    ),
    R("stdio.prefix", _STDIO, "SHOULD", "Further variables begin with FMSG_."),
    R("stdio.inspectable", _STDIO, "SHOULD", "initialize and tools/list are answered without any configuration."),
    R("stdio.missing", _STDIO, "MUST", "Without configuration each tool call fails and names the missing variables."),
    R("stdio.stdout", _STDIO, "MUST", "Nothing but MCP messages goes to standard output."),
    R("http.path", _HTTP, "MUST", "The MCP endpoint is at /mcp."),
    R(
        "http.bearer",
        _HTTP,
        "MUST",
        "Every request needs a bearer key; without a valid one: 401 and a Bearer challenge.",
    ),
    R("http.identity", _HTTP, "MUST", "The address comes from exchanging the key, and a request acts as it alone."),
    R("http.isolation", _HTTP, "MUST", "No caller observes another's identity, cache or tokens."),
    R("http.no_shared_key", _HTTP, "MUST", "A hosted server is not configured with one key for all callers."),
    R("http.host_header", _HTTP, "SHOULD", "The Host header is checked against the operator's list."),
    R("http.key_not_kept", _HTTP, "MUST", "The key is neither stored nor logged; caches are keyed by its hash."),
    R("http.healthz", _HTTP, "SHOULD", "GET /healthz answers 200."),
    R("references.strings", _REFERENCES, "MUST", "References are accepted and returned as decimal strings."),
    R("references.exact", _REFERENCES, "MUST", "All 64 bits of an id survive."),
    R("references.digits", _REFERENCES, "MUST", "What is not a string of decimal digits is rejected."),
    R("references.sha256", _REFERENCES, "SHOULD", "A message's SHA-256 is in results where the Web API gives it."),
    R("references.times", _REFERENCES, "MUST", "Times are RFC 3339 in UTC; a draft's is null."),
    R("references.addresses", _REFERENCES, "MUST", "Addresses are rendered as @user@domain in lower case."),
    R("references.resolved", _REFERENCES, "MUST", "Short names may be given; results have the full addresses only."),
    R("resources.templates", _RESOURCES, "MUST", "fmsg://message/{id} and fmsg://thread/{id} are registered."),
    R("resources.markdown", _RESOURCES, "MUST", "Both return text/markdown: headers and text body; the lineage."),
    R("resources.not_listed", _RESOURCES, "MUST", "resources/list does not list messages."),
    R("tools.core", _TOOLS, "MUST", "The core tools are there under their names with their arguments."),
    R("tools.recommended", _TOOLS, "SHOULD", "The recommended tools are there under their names with their arguments."),
    R("tools.both", _TOOLS, "MUST", "Every result has a readable text block and structured content."),
    R("tools.errors", _TOOLS, "MUST", "Failures are results with isError and a message one can act on."),
    R("tools.verbatim", _TOOLS, "MUST", "The Web API's own error text is in the failure, verbatim."),
    R("tools.whoami", _CORE, "MUST", "whoami: address, api_url, transport."),
    R("tools.list_messages", _CORE, "MUST", "list_messages: messages newest first, count, next_offset."),
    R("tools.get_message", _CORE, "MUST", "get_message: message, body (null if no text), body_truncated."),
    R(
        "tools.get_thread",
        _CORE,
        "MUST",
        "get_thread: root_id, trigger_id, complete, participants, reply_target_id, terminal, messages root first.",
    ),
    R(
        "tools.send_message",
        _CORE,
        "MUST",
        "send_message starts a thread at once: id, time, from, to, topic, attachments, redactions.",
    ),
    R("tools.reply", _CORE, "MUST", "reply is linked by pid and sent at once: as send_message, and parent_id."),
    R("tools.item", _CORE, "MUST", "A message item has at least the fields the standard names."),
    R("tools.list_sent", _RECOMMENDED, "SHOULD", "list_sent: as list_messages, each item with its delivery."),
    R(
        "tools.delivery_status",
        _RECOMMENDED,
        "SHOULD",
        "delivery_status: id, sent_at, recipients, added ones included.",
    ),
    R("tools.add_recipients", _RECOMMENDED, "SHOULD", "add_recipients: id, added, add_to resolved."),
    R("tools.react", _RECOMMENDED, "SHOULD", "react: id, reaction_id, cleared; null or empty clears."),
    R("tools.mark_read", _RECOMMENDED, "SHOULD", "mark_read: marked, failed."),
    R(
        "tools.download_attachment",
        _RECOMMENDED,
        "SHOULD",
        "download_attachment: bytes inline up to a cap, or a file; id, filename, size, content_type, saved_to.",
    ),
    R("tools.save_to_hosted", _RECOMMENDED, "MUST", "A hosted server rejects save_to."),
    R("tools.resolve_address", _RECOMMENDED, "SHOULD", "resolve_address: address, resolution; sends nothing."),
    R(
        "tools.wait_for_message",
        _RECOMMENDED,
        "SHOULD",
        "wait_for_message: status, after_id, thread_root_id, reply_target_id, messages with body, transport.",
    ),
    R("tools.wait_settle", _RECOMMENDED, "MUST", "Messages of one thread within settle_seconds come together."),
    R("tools.wait_passes_over", _RECOMMENDED, "MUST", "Own messages, reactions and no_reply messages do not qualify."),
    R("tools.wait_cap", _RECOMMENDED, "MUST", "A wait is capped and then returns timeout; it does not fail."),
    R("rules.reply_all", _RULES, "MUST", "Without recipients a reply goes to the participants minus the caller."),
    R("rules.from_message", _RULES, "MUST", "That set is taken from the message itself, not from the root."),
    R(
        "rules.terminal",
        _RULES,
        "MUST",
        "reply, add_recipients and react on a terminal message are refused before the Web API is asked to do anything.",
    ),
    R("rules.terminal_told", _RULES, "SHOULD", "get_thread says that a message is terminal."),
    R("rules.no_reply", _RULES, "MUST", "A no_reply message is replied to only with allow_no_reply: true."),
    R("rules.no_reply_wait", _RULES, "MUST", "wait_for_message does not return no_reply messages."),
    R("rules.reactions", _RULES, "MUST", "Reactions are in lists only when asked for, and never in waits."),
    R("rules.one_call", _RULES, "MUST", "One call creates the draft, uploads every attachment and sends."),
    R("rules.nothing_left", _RULES, "MUST", "The draft is deleted when a later step fails."),
    R("rules.no_own_limits", _RULES, "MUST", "No limits of our own on messages, attachments or threads."),
    R("rules.no_warnings", _RULES, "MUST", "No warnings about limits assumed of other hosts."),
    R("rules.codes", _RULES, "MUST", "Rejections are shown verbatim, per-recipient delivery codes included."),
    R("rules.identity", _RULES, "MUST", "No argument changes the sending address."),
    R("safety.read_only", _SAFETY, "MUST", "Tools that only read say readOnlyHint: true."),
    R(
        "safety.destructive",
        _SAFETY,
        "MUST",
        "send_message, reply and add_recipients say destructiveHint: true, and that a sent message is final.",
    ),
    R("safety.immediate", _SAFETY, "MUST", "Sending needs no confirmation step of the server's."),
    R("safety.redaction", _SAFETY, "MUST", "API keys in topic and body are replaced before sending."),
    R(
        "safety.redaction_more",
        _SAFETY,
        "SHOULD",
        "So are JWTs, provider tokens and private key blocks.",
    ),
    R("safety.redaction_count", _SAFETY, "MUST", "The result says how many replacements there were."),
    R("safety.framing", _SAFETY, "MUST", "Foreign content is preceded by a statement that it is no instruction."),
    R("safety.framing_short", _SECURITY, "SHOULD", "That statement is short and always the same."),
    R("safety.no_credentials", _SAFETY, "MUST", "No key or token in results, resources, logs or errors."),
    R("safety.error_redaction", _SAFETY, "MUST", "Error text is redacted as outgoing messages are."),
    R("safety.downloads", _SAFETY, "MUST", "Files are written only at a path the caller supplies, on stdio."),
    R("safety.downloads_confined", _SAFETY, "SHOULD", "The operator can confine them to a directory."),
    R("safety.never_persisted", _SECURITY, "MUST", "Keys of hosted callers are never persisted."),
    R("prompts.names", _PROMPTS, "SHOULD", "The prompts are named chat and reply."),
    R("interop.401", _INTEROP, "MUST", "1. Without a bearer key: 401.", (_HOUSE,)),
    R("interop.whoami", _INTEROP, "MUST", "2. whoami reports the configured address.", (_HOUSE,)),
    R("interop.send", _INTEROP, "MUST", "3. send_message reaches the second host.", (_HOUSE,)),
    R(
        "interop.wait",
        _INTEROP,
        "MUST",
        "4. The reply is returned by wait_for_message with reply_target_id.",
        (_HOUSE,),
    ),
    R("interop.thread", _INTEROP, "MUST", "5. get_thread shows both messages and the one participant.", (_HOUSE,)),
    R("interop.react", _INTEROP, "MUST", "6. react on the reply succeeds.", (_HOUSE,)),
    R("interop.delivered", _INTEROP, "MUST", "7. delivery_status reports delivered.", (_HOUSE,)),
)
