"""Boosted trees as plain numbers: kept as JSON, checked when they are read, and evaluated without any
library.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

LEAF = -1


class Tree(Struct, frozen=True, array_like=True):
    """One tree, a list for each property of its nodes; node 0 is the root, and children come after their
    parent.
    """

    column: list[int]
    """Which column a node looks at; `LEAF` where there is nothing to ask."""
    threshold: list[float]
    """Up to it the left child is next, beyond it the right one."""
    left: list[int]
    right: list[int]
    missing_left: list[bool]
    """Where a row goes that has no number there."""
    value: list[float]
    """What a leaf adds."""

    def problem(self, columns: int) -> str | None:
        """What is wrong with it, if anything is: a tree without any problem always comes to an end."""
        n = len(self.column)
        if not n or any(
            len(each) != n for each in (self.threshold, self.left, self.right, self.missing_left, self.value)
        ):
            return "a tree whose lists differ in length"
        for node, column in enumerate(self.column):
            inner = node < self.left[node] < n and node < self.right[node] < n and 0 <= column < columns
            if column != LEAF and not inner:
                return "a tree that points outside itself"
        return None


class Trees(Struct, frozen=True):
    """Trees that are added up."""

    start: float
    trees: list[Tree]

    def problem(self, columns: int) -> str | None:
        """What is wrong with any of them."""
        return next((found for tree in self.trees if (found := tree.problem(columns)) is not None), None)

    def evaluate(self, row: Sequence[float]) -> float:
        """The value of a row with a number, or NaN, for each column."""
        total = self.start
        for tree in self.trees:
            columns, thresholds, left, right = tree.column, tree.threshold, tree.left, tree.right
            node = 0
            while (column := columns[node]) != LEAF:
                x = row[column]
                if x <= thresholds[node]:
                    node = left[node]
                elif x > thresholds[node]:
                    node = right[node]
                else:  # NaN is neither
                    node = left[node] if tree.missing_left[node] else right[node]
            total += tree.value[node]
        return total
