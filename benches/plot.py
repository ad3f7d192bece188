"""Plots on logarithmic axes as SVG, for the benches."""
import math

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 640, 420, 70, 50, 16, 150
STYLE = """text{font:12px sans-serif;fill:#222}.axis{stroke:#bbb}.line{fill:none;stroke-width:2}
@media (prefers-color-scheme:dark){text{fill:#ddd}.axis{stroke:#555}}"""
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"]


def plot(path, title, axes, series, lines=True):
    """Writes `series`, of a name and points (x, y, label) each, with `axes` named (x, y); the lines or the points of each.

    `axes` has a name, a list of ticks and a function from a tick to its text for x and for y.
    """
    (x_name, x_ticks, x_text), (y_name, y_ticks, y_text) = axes
    def place(value, ticks, low, high):
        low_log, high_log = math.log(ticks[0]), math.log(ticks[-1])
        return low + (math.log(value) - low_log) / (high_log - low_log) * (high - low)
    def x_of(value):
        return place(value, x_ticks, LEFT, WIDTH - RIGHT)
    def y_of(value):
        return place(value, y_ticks, HEIGHT - BOTTOM, TOP)
    def text(x, y, words, anchor="middle", more=""):
        words = words.replace("&", "&amp;").replace("<", "&lt;")
        return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{words}</text>'
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"><title>{title}</title><style>{STYLE}</style>']
    for tick in x_ticks:
        out.append(f'<path class="axis" d="M{x_of(tick):.1f} {TOP}V{HEIGHT - BOTTOM}"/>')
        out.append(text(x_of(tick), HEIGHT - BOTTOM + 16, x_text(tick)))
    for tick in y_ticks:
        out.append(f'<path class="axis" d="M{LEFT} {y_of(tick):.1f}H{WIDTH - RIGHT}"/>')
        out.append(text(LEFT - 6, y_of(tick) + 4, y_text(tick), "end"))
    out.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, x_name))
    middle = (HEIGHT - BOTTOM + TOP) / 2
    out.append(text(14, middle, y_name, more=f' transform="rotate(-90 14 {middle:.1f})"'))
    for n, (name, points) in enumerate(series):
        colour = COLOURS[n % len(COLOURS)]
        if lines:
            path_of = "L".join(f"{x_of(x):.1f} {y_of(y):.1f}" for x, y, _ in points)
            out.append(f'<path class="line" stroke="{colour}" d="M{path_of}"/>')
        for x, y, label in points:
            out.append(f'<circle cx="{x_of(x):.1f}" cy="{y_of(y):.1f}" r="3" fill="{colour}"><title>{label}</title></circle>')
        out.append(f'<circle cx="{WIDTH - RIGHT + 14}" cy="{TOP + 10 + 20 * n}" r="4" fill="{colour}"/>')
        out.append(text(WIDTH - RIGHT + 24, TOP + 14 + 20 * n, name, "start"))
    with open(path, "w") as file:
        file.write("\n".join(out) + "\n</svg>\n")
