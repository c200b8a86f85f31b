"""``python -m gpt --prompt ROMEO: --count 500 --temperature 0.8``"""

import argparse

from gpt import generate


def main() -> None:
    """Print the prompt, and letter by letter what the model makes of it."""
    parser = argparse.ArgumentParser(prog="python -m gpt", description="Continue a text.")
    parser.add_argument("--prompt", default="\n", help="how it begins")
    parser.add_argument("--count", type=int, default=500, help="how many letters follow (default: %(default)s)")
    parser.add_argument("--temperature", type=float, default=0.8, help="how bold; 0: always the likeliest letter")
    parser.add_argument("--seed", type=int, help="a number for which the same text comes again")
    options = parser.parse_args()
    try:
        pieces = generate(options.prompt, max_tokens=options.count, temperature=options.temperature, seed=options.seed)
    except ValueError as error:
        parser.error(str(error))
    print(options.prompt, end="")
    for letters in pieces:
        print(letters, end="", flush=True)
    print()


if __name__ == "__main__":
    main()
