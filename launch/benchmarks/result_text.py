"""The texts of what the benchmarks have measured."""

from typing import Any

_MOST_MS_PER_STEP = 8.0  # that were asked for, of local steps of the small ResNet on 32 images
_MET = {True: "yes", False: "no", None: ""}


def of_report(content: dict[str, Any]) -> str:
    """The report as Markdown."""
    lines = ["# Rounds in this process", "", f"Device: {content['device']}.", ""]
    for row in content["equality"]:
        lines.append(
            f"A DCCO round of {row['images']} clients and a centralized step, products "
            f"{row['products']}: they differ by {row['difference']:.1e} of the gradient's norm. "
            f"Rounding may make {row['tolerance']:.1e}: {'equal' if row['holds'] else 'NOT EQUAL'}."
        )
    lines += [
        "", "| step or round | ms | least | first, s | ratio | asked | met | ms a local step "
        f"(asked: {_MOST_MS_PER_STEP:g}, of the small ResNet) | peak MiB |",
        "|---|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for row in content["times"] + content["determinism"]:
        ratio = f"{row['ratio']:.2f}" if row["ratio"] else ""
        lines.append(
            f"| {row['name']} | {1e3 * row['seconds']:.1f} | {1e3 * row['least_seconds']:.1f} | "
            f"{row['first_seconds']:.1f} | {ratio} | {row['asked'] or ''} | "
            f"{_MET[row['met']]} | "
            f"{row.get('ms_per_step', 0) or '':.4} | {row['peak_mib'] or ''} |"
        )
    for row in content["determinism"]:
        lines += ["", f"Two runs of {row['name']} "
                  + ("are equal bit for bit." if row["repeats"] else "DIFFER.")]  # fmt: skip
    for results in content["peers"]:
        lines += of_peer_briefly(results)
    for name, found in content["profiles"].items():
        lines += ["", f"## {name}", ""]
        for where, summary in found.items():
            lines.append(
                f"- {where}: {summary['events']:.0f} events, {summary['milliseconds']:.1f} ms of "
                f"{summary['span_milliseconds']:.1f} ms"
                + (f", idle {summary['idle_milliseconds']:.1f} ms; {copies[0]:.0f} copies to the "
                   f"host, {copies[1]:.2f} ms" if (copies := summary.get("to_host")) else "")
            )  # fmt: skip
            lines += [f"  - {ms:.2f} ms, {count:.0f}: `{kind}`" for kind, count, ms in
                      summary["longest"]]  # fmt: skip
    if content["left_out"]:
        lines += ["", f"Left out: {'; '.join(content['left_out'])}."]
    return "\n".join(lines) + "\n"


def of_peer(results: dict[str, Any]) -> str:
    """The text of `compare`'s results: the settings, and a table for each work."""
    lines, name = [""], results["name"]
    for work in results["work"]:
        values = work["same_weights_and_batch"]
        pairs = [
            f"{key.replace('_', ' ')} {values['tff_ssl'][key]:.6f} and {values[name][key]:.6f}"
            for key in ("loss", "gradient_norm")
        ]
        header = ("seconds", "ratio", "asked", "met", "CPU s", "start s", "peak MB", "PSS MB")
        lines += [
            f"{work['name']}: {work['both']}",
            f"the same weights and batch, tff_ssl and {name}: {', '.join(pairs)}",
            f"{'':34}" + "".join(f"{column:>9}" for column in header),
        ]
        for row in work["programs"]:
            fastest = " *" if row["name"] == work["fastest"] else ""
            ratio = f"{row['ratio']:9.2f}" if "ratio" in row else " " * 9
            lines.append(
                f"  {row['name'] + fastest:32}{row['seconds']:9.4f}{ratio}"
                f"{row.get('asked') or '':>9}{_MET[row.get('met')]:>9}{row['cpu_seconds']:9.2f}"
                f"{row['first_round_seconds']:9.1f}{row['peak_rss_mb']:9.0f}{row['pss_mb']:9.0f}"
            )
        lines += [*(f"left out: {line}" for line in work["left_out"]), ""]
    return "\n".join(
        [
            *lines,
            *(f"{name}: {text}" for name, text in results["settings"].items()),
            "ratio: to the fastest of theirs (*). start: process to the end of its first step. "
            "peak: resident",
            "memory of all processes, shared pages counted in each; PSS: after the last step, "
            "shared pages once.",
        ]
    )


def of_peer_briefly(results: dict[str, Any]) -> list[str]:
    """The lines of `compare`'s tables in Markdown, for `gpu_report`."""
    lines = []
    for work in results["work"]:
        lines += ["", f"{work['name']}: {work['both']}.", ""]
        lines += ["| program | ms | ratio | asked | met |", "|---|---|---|---|---|"]
        for row in work["programs"]:
            ratio = f"{row['ratio']:.2f}" if "ratio" in row else ""
            lines.append(
                f"| {row['name']} | {1e3 * row['seconds']:.1f} | {ratio} | "
                f"{row.get('asked') or ''} | {_MET[row.get('met')]} |"
            )
        lines += [f"\nLeft out: {line}." for line in work["left_out"]]
    return lines
