"""A small log in the form of the published ones."""

HAND = "1 2 3 4"
FIRST = ["1 + 2 = 3 (left: 3 3 4)", "4 * 3 = 12 (left: 1 2 12)"]
GAME24 = [
    {
        "idx": 7,
        "steps": [
            {
                "step": 0,
                "x": HAND,
                "ys": [""],
                "new_ys": [f"{FIRST[0]}\n", f"{FIRST[1]}\n", f"{FIRST[0]}\n"],
                "values": [0.002, 21.001, 0],
                "select_new_ys": [f"{FIRST[1]}\n"],
            },
            {
                "step": 1,
                "x": HAND,
                "ys": [f"{FIRST[1]}\n"],
                "new_ys": [f"{FIRST[1]}\n2 * 12 = 24 (left: 1 24)\n", f"{FIRST[1]}\nI see no way\n"],
                "values": [60.0, 0],
                "select_new_ys": [f"{FIRST[1]}\n2 * 12 = 24 (left: 1 24)\n"],
            },
        ],
        "ys": [f"{FIRST[1]}\n2 * 12 = 24 (left: 1 24)\n"],
        "infos": [{"r": 0}],
        "usage_so_far": {"cost": 1.25},
    }
]
