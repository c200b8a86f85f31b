"""A learning curve as a picture."""


def picture(losses: list[float], accuracies: list[float]) -> str:
    """The learning curve as SVG: the loss in blue, the accuracy after each epoch in orange."""
    width, height, edge, top = 640, 320, 30, max(losses, default=1.0)

    def curve(values: list[float], most: float, color: str, first: int) -> list[str]:
        step = (width - 2 * edge) / max(len(values) - 1 + first, 1)
        at = [(edge + (i + first) * step, height - edge - v / most * (height - 2 * edge)) for i, v in enumerate(values)]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
        dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>' for x, y in at if len(values) < 50]
        return [f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>', *dots]

    shown = f"accuracy {accuracies[-1]:.2%} (top: 100 %)" if accuracies else ""
    last = f"loss {losses[-1]:.3f} (top: {top:.2f})" if losses else ""
    axes = f"M{edge},{edge} V{height - edge} H{width - edge}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif">',
            '<rect width="100%" height="100%" fill="white"/>',
            f'<path d="{axes}" fill="none" stroke="#888"/>',
            *curve(losses, top, "#08519c", 0),
            *curve(accuracies, 1.0, "#e6550d", 1),  # known at the end of an epoch
            f'<text x="{edge + 10}" y="20" fill="#08519c">{last}</text>',
            f'<text x="{width // 2}" y="20" fill="#e6550d">{shown}</text>',
            "</svg>",
            "",
        ]
    )
