# SPDX-License-Identifier: GPL-2.0
"""What counts in a report of kmemleak."""

import os
import subprocess
import tempfile
import unittest

import support  # noqa: F401 (the path)

from lablib.initramfs import GUEST_DIR

_OBJECT = """unreferenced object 0xffff88800ae2b040 (size {size}):
  comm "ld-linux-x86-64", pid 830, jiffies 4295094703
  hex dump (first 32 bytes):
    01 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00  ................
  backtrace:
{trace}
"""


def _object(size, *functions):
    return _OBJECT.format(size=size, trace="\n".join(
        f"    [<ffffffff81648e62>] {name}+0x202/0x340" for name in functions))


_CLONE = ("kernel_clone", "__do_sys_clone", "__x64_sys_clone", "do_syscall_64")
_TASK = _object(7944, "kmem_cache_alloc_node", "copy_process", *_CLONE)
_CREDS = _object(168, "kmem_cache_alloc", "prepare_creds", "copy_creds", "copy_process", *_CLONE)
_MEMORY = _object(1408, "kmem_cache_alloc", "dup_mm", "copy_process", *_CLONE)
_OURS = _object(64, "kmalloc_trace", "ropcie_create_qp", "create_qp", "do_syscall_64")
_NODE = ("kmem_cache_alloc", "radix_tree_node_alloc.constprop.0", "radix_tree_insert")
_UAPI = _object(576, *_NODE, "uapi_add_get_elm", "uapi_merge_def", "uverbs_alloc_api")
_OTHER_NODE = _object(576, *_NODE, "ropcie_key_add", "ropcie_reg_mr")


class Leaks(unittest.TestCase):
    """guest/count-leaks."""

    def count(self, report, *options):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write(report)
            file.flush()
            done = subprocess.run(["bash", os.path.join(GUEST_DIR, "count-leaks"), file.name, *options],
                                  check=True, capture_output=True, text=True)
        return int(done.stdout)

    def test_every_object_counts(self):
        self.assertEqual(self.count(""), 0)
        self.assertEqual(self.count(_TASK + _CREDS + _MEMORY + _OURS), 4)
        self.assertEqual(self.count(_TASK + _OURS, ""), 2)

    def test_only_tasks_are_left_out_where_they_may_be(self):
        self.assertEqual(self.count(_TASK + _CREDS, "tasks"), 0)
        self.assertEqual(self.count(_TASK + _MEMORY + _CREDS + _OURS, "tasks"), 2)

    def test_only_nodes_of_verbs_are_left_out_where_they_may_be(self):
        self.assertEqual(self.count(_UAPI + _OTHER_NODE + _TASK, "uapi"), 2)
        self.assertEqual(self.count(_UAPI + _OTHER_NODE + _TASK, "tasks\nuapi"), 1)
        self.assertEqual(self.count(_UAPI, "tasks"), 1)


if __name__ == "__main__":
    unittest.main()
