"""The Page–Hinkley test for a rise of a stream's mean, one value at a time.

Source: Page, Continuous Inspection Schemes, Biometrika 41 (1954); the one-sided form with forgetting that river's
`PageHinkley(mode="up")` computes, so that its figures can be compared.
"""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class PageHinkley:
    """Settings of the test, and its state after some values of a stream.

    With a spread of σ around a steady mean, the mean time between false alarms grows as exp(2 · delta · limit / σ²); a
    rise by d is noticed after about limit / (d − delta) values.

    Attributes:
        delta: Tolerated rise, in the stream's unit.
        limit: Threshold of the statistic; the test alarms above it.
        least: Number of values before which the test does not alarm.
        forgetting: Factor by which the sum decays at each value.
        count: Number of values.
        mean: Mean of the values.
        excess: Summed deviation above the mean.
        lowest: Lowest value of the sum so far.
    """

    delta: float = 0.05
    limit: float = 5.0
    least: int = 30
    forgetting: float = 0.9999
    count: int = 0
    mean: float = 0.0
    excess: float = 0.0
    lowest: float = float("inf")

    @property
    def statistic(self) -> float:
        """Rise of the sum above its lowest value."""
        return self.excess - self.lowest if self.count else 0.0

    @property
    def alarms(self) -> bool:
        """Whether the mean has risen."""
        return self.count >= self.least and self.statistic > self.limit

    def after(self, value: float) -> "PageHinkley":
        """Return the test after one more value; after an alarm it starts anew."""
        before = self.fresh() if self.alarms else self
        count = before.count + 1
        mean = before.mean + (value - before.mean) / count
        excess = self.forgetting * before.excess + value - mean - self.delta
        return replace(before, count=count, mean=mean, excess=excess, lowest=min(before.lowest, excess))

    def fresh(self) -> "PageHinkley":
        """Return the test with the same settings and no values."""
        return PageHinkley(self.delta, self.limit, self.least, self.forgetting)
