"""Has something grown, and have steps become slower?"""
import statistics
from dataclasses import dataclass

from samples import QUANTITIES, Quantity, Sample
from work import Done

WINDOW = 100  # plain steps, at both ends
SHOWN = 20  # files
FEWEST = 10  # bare ones beside them; with fewer nothing is said
SLOWER = 1.5  # of plain steps, measured in bare ones: a busy machine makes both slower


@dataclass
class Verdict:
    """Of a quantity: empty `wrong` is well."""

    quantity: Quantity
    first: int
    last: int
    largest: int
    allowed: int
    wrong: str
    new: list[str]  # files


def of_quantity(quantity: Quantity, samples: list[Sample]) -> Verdict:
    values = [sample.numbers[quantity.name] for sample in samples]
    settled = max(values[:(len(values) + 1) // 2]) if quantity.settles else values[0]
    allowed = settled + quantity.growth
    if quantity.most is not None:
        allowed = min(allowed, quantity.most)
    grown = next((sample for sample, value in zip(samples, values) if value > allowed), None)
    new = sorted(grown.names.get(quantity.name, set()) - samples[0].names.get(quantity.name, set())) if grown else []
    return Verdict(quantity, values[0], values[-1], max(values), allowed, f"GREW within {grown.steps} steps" if grown else "", new)


@dataclass
class Latency:
    """Medians in seconds; ratio: of plain to bare at the end, as a multiple of that at the beginning."""

    plain: tuple[float, float]
    bare: tuple[float, float]
    ratio: float
    judged: bool

    @property
    def wrong(self) -> bool:
        return self.judged and self.ratio > SLOWER


def latency(done: list[Done]) -> Latency | None:
    plain = [one for one in done if one.step.kind == "plain" and not one.wrong]
    bare = [one for one in done if one.step.kind == "bare" and not one.wrong]
    window = min(WINDOW, len(plain) // 2)
    ends = plain[:window], plain[-window:]
    beside = [one for one in bare if one.step.number <= ends[0][-1].step.number] if window else [], \
        [one for one in bare if one.step.number >= ends[1][0].step.number] if window else []
    if not all((*ends, *beside)):
        return None
    first, last, bare_first, bare_last = (statistics.median(one.seconds for one in part) for part in (*ends, *beside))
    return Latency((first, last), (bare_first, bare_last), (last / bare_last) / (first / bare_first),
                   window == WINDOW and min(map(len, beside)) >= FEWEST)


def show(verdicts: list[Verdict], taken: Latency | None) -> None:
    print(f"\n{'':26} {'first':>9} {'last':>9} {'largest':>9} {'allowed':>9}")
    for one in verdicts:
        quantity = one.quantity
        rule = "" if not (quantity.growth or quantity.settles or quantity.most) else quantity.why
        print(f"{quantity.name:26} {one.first:>9} {one.last:>9} {one.largest:>9} {one.allowed:>9}  {one.wrong or rule}")
        print("".join(f"    {path}\n" for path in one.new[:SHOWN]), end="")
    if taken is None:
        print("latency: too few steps")
        return
    print(f"plain steps, ms            {taken.plain[0] * 1000:>9.0f} {taken.plain[1] * 1000:>9.0f}\nbare steps, ms             {taken.bare[0] * 1000:>9.0f} "
          f"{taken.bare[1] * 1000:>9.0f}\nplain to bare, last to first: {taken.ratio:.2f}, {f'at most {SLOWER}' if taken.judged else 'too few steps to judge'}"
          f"{'  SLOWER' if taken.wrong else ''}")


def judge(samples: list[Sample]) -> list[Verdict]:
    return [of_quantity(quantity, samples) for quantity in QUANTITIES]
