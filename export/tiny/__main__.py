"""The embedded model's recipe from the shell; see ``--help``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m mineru_edge.export.tiny", description=__doc__)
    sub = parser.add_subparsers(dest="verb", required=True)
    t = sub.add_parser("train", help="train (or go on training) in WORK")
    t.add_argument("work", type=Path)
    t.add_argument("--minutes", type=float, default=100)
    t.add_argument("--ranks", type=int, default=2, help="processes of one thread each")
    t.add_argument("--start", type=Path, help="a checkpoint directory to begin with")
    w = sub.add_parser("write", help="write WORK's weights as a checkpoint directory")
    w.add_argument("work", type=Path)
    w.add_argument("checkpoint", type=Path)
    e = sub.add_parser("evaluate", help="measure a bundle on pages it never saw; one line of JSON")
    e.add_argument("bundle", type=Path)
    e.add_argument("--pages", type=int, default=200)
    e.add_argument("--first-seed", type=int, default=1000)
    e.add_argument("--engine", default="auto", help="as for `mineru-edge parse`")
    s = sub.add_parser("sample", help="write the sample page of the README")
    s.add_argument("pdf", type=Path)
    args = parser.parse_args()
    if args.verb == "sample":
        from .sample import write as write_sample

        write_sample(args.pdf)
    elif args.verb == "train":
        from .train import train

        train(args.work, args.minutes, ranks=args.ranks, start=args.start)
    elif args.verb == "write":
        from .checkpoint import write

        write(args.work / "train.pt", args.checkpoint)
    else:
        from .evaluate import evaluate

        seeds = range(args.first_seed, args.first_seed + args.pages)
        print(json.dumps(evaluate(args.bundle, seeds, engine=args.engine).to_json()))


if __name__ == "__main__":
    main()
