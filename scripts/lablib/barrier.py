# SPDX-License-Identifier: GPL-2.0
"""lab-barrier's other half: who has come, and who waits for whom.

Pure state: nodes and names in, answers out. A name can be used again; a
node's n-th call of it meets the n-th of the others.
"""


class Barriers:
    """All barriers of one run.

    answer(node, token, text) is called with "ok", or "fail REASON", for each
    call of arrive(), at once or later.
    """

    def __init__(self, nodes, answer):
        self._nodes = frozenset(nodes)
        self._answer = answer
        self._calls = {}
        self._waiting = {}
        self._gone = {}

    def arrive(self, node, token, name):
        """A node has called the barrier."""
        count = self._calls[node, name] = self._calls.get((node, name), 0) + 1
        waiting = self._waiting.setdefault((name, count), {})
        waiting[node] = token
        if waiting.keys() == self._nodes:
            del self._waiting[name, count]
            for waiter, waiters_token in waiting.items():
                self._answer(waiter, waiters_token, "ok")
            return
        self._release_hopeless()

    def name_for(self, node):
        """The barrier at which a node waits, or None."""
        return next((name for (name, _), waiting in self._waiting.items() if node in waiting), None)

    def leave(self, node, reason):
        """A node will call no more: whoever waits for it waits in vain."""
        self._gone.setdefault(node, reason)
        self._release_hopeless()

    def restart(self, node):
        """A node was killed and starts again: where it waited it has not come."""
        for (name, count), waiting in list(self._waiting.items()):
            if waiting.pop(node, None) is not None:
                self._calls[node, name] -= 1
            if not waiting:
                del self._waiting[name, count]

    def _release_hopeless(self):
        for key in list(self._waiting):
            missing = sorted(self._gone.keys() - self._waiting[key].keys())
            if not missing:
                continue
            reason = f"fail node{missing[0]} {self._gone[missing[0]]}"
            for node, token in self._waiting.pop(key).items():
                if node not in self._gone:
                    self._answer(node, token, reason)
