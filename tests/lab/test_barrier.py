# SPDX-License-Identifier: GPL-2.0
"""lab-barrier's rules, without guests."""

import unittest

import support  # noqa: F401 (the path)

from lablib.barrier import Barriers


class BarrierRules(unittest.TestCase):
    def setUp(self):
        self.answers = []
        self.barriers = Barriers((1, 2, 3), lambda *answer: self.answers.append(answer))

    def test_nobody_returns_before_all_have_come(self):
        self.barriers.arrive(1, "a", "x")
        self.barriers.arrive(2, "b", "x")
        self.assertEqual(self.answers, [])
        self.barriers.arrive(3, "c", "x")
        self.assertCountEqual(self.answers, [(1, "a", "ok"), (2, "b", "ok"), (3, "c", "ok")])

    def test_names_are_apart(self):
        for node in (1, 2):
            self.barriers.arrive(node, "t", "x")
        self.barriers.arrive(3, "t", "y")
        self.assertEqual(self.answers, [])

    def test_a_name_can_be_used_again(self):
        for token in "pq":
            for node in (1, 2, 3):
                self.barriers.arrive(node, token, "x")
        self.assertEqual(len(self.answers), 6)

    def test_the_next_call_of_a_fast_node_waits_for_the_others_next(self):
        self.barriers.arrive(1, "1", "x")
        self.barriers.arrive(1, "1 killed, called again", "x")
        self.barriers.arrive(2, "2", "x")
        self.barriers.arrive(3, "3", "x")
        self.assertEqual(len(self.answers), 3)

    def test_a_dead_node_fails_those_who_wait_for_it(self):
        self.barriers.arrive(1, "a", "x")
        self.barriers.leave(3, "has died")
        self.assertEqual(self.answers, [(1, "a", "fail node3 has died")])
        self.barriers.arrive(2, "b", "x")
        self.assertEqual(self.answers[1:], [(2, "b", "fail node3 has died")])

    def test_a_node_that_had_come_before_it_ended_is_not_missed(self):
        self.barriers.arrive(3, "c", "x")
        self.barriers.leave(3, "has ended with status 0")
        self.barriers.arrive(1, "a", "x")
        self.assertEqual(self.answers, [])
        self.barriers.arrive(2, "b", "x")
        self.assertEqual(len(self.answers), 3)

    def test_tells_where_a_node_waits(self):
        self.barriers.arrive(1, "a", "x")
        self.assertEqual(self.barriers.name_for(1), "x")
        self.assertIsNone(self.barriers.name_for(2))

    def test_a_killed_node_has_not_come_and_comes_again(self):
        self.barriers.arrive(1, "a", "x")
        self.barriers.arrive(2, "b", "x")
        self.barriers.restart(2)
        self.barriers.arrive(3, "c", "x")
        self.assertEqual(self.answers, [])
        self.barriers.arrive(2, "d", "x")
        self.assertCountEqual(self.answers, [(1, "a", "ok"), (2, "d", "ok"), (3, "c", "ok")])

    def test_a_killed_node_keeps_the_count_of_what_it_came_through(self):
        for node in (1, 2, 3):
            self.barriers.arrive(node, "t", "x")
        self.barriers.restart(2)
        for node in (1, 2, 3):
            self.barriers.arrive(node, "u", "x")
        self.assertEqual(len(self.answers), 6)

    def test_one_node_alone_never_waits(self):
        answers = []
        Barriers((1,), lambda *answer: answers.append(answer)).arrive(1, "t", "x")
        self.assertEqual(answers, [(1, "t", "ok")])


if __name__ == "__main__":
    unittest.main()
