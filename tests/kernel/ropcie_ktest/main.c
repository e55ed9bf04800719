// SPDX-License-Identifier: GPL-2.0
/*
 * ropcie_ktest.ko: for each RDMA device a directory
 * /sys/kernel/debug/ropcie_ktest/DEVICE/ with these files:
 *
 *   local   read: makes a queue pair; "QPN PSN GID MAC" of this side
 *   remote  write: that line of the other side; connects
 *   run     write: "send" here and "recv" at the other side; returns when all
 *           messages went there and back, or fails
 *   keys    write: name of a device, which may be the same; tries what keys of
 *           fast registrations protect, in operations from here to there
 *   own     write: a number; sends so many messages between two queue pairs of this
 *           device which take the key away that they are sent with
 *   user    write: registers the memory of what is written, as kernel code does for a
 *           process (ib_reg_user_mr())
 *   result  read: one line, PASS or FAIL
 *
 * A test ends with run, keys or own; the next reading of local begins a new one.
 *
 * And /sys/kernel/debug/ropcie_ktest/race: all that write a number to it at the same
 * time have a data race, so many times. KCSAN, where a kernel has it, is to say so.
 */
#include <linux/debugfs.h>
#include <linux/etherdevice.h>
#include <linux/module.h>
#include <linux/random.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "keys.h"
#include "ktest.h"

static unsigned int rounds = 2;
module_param(rounds, uint, 0644);
MODULE_PARM_DESC(rounds, "how often all sizes are sent each way (default 2)");

static const enum ib_poll_context ktest_polls[] = {
	IB_POLL_DIRECT, IB_POLL_SOFTIRQ, IB_POLL_WORKQUEUE,
};

static unsigned int poll = 2;
module_param(poll, uint, 0644);
MODULE_PARM_DESC(poll, "0: poll without events, 1: softirq, 2: work queue (default)");

static unsigned int cross_every = 10;
module_param(cross_every, uint, 0644);
MODULE_PARM_DESC(cross_every, "keys: of all combinations one of so many (default 10)");

static unsigned int seed;
module_param(seed, uint, 0644);
MODULE_PARM_DESC(seed, "keys: which of them (default 0: any)");

#define KTEST_MAX_ROUNDS 1000

/**
 * struct ktest_device - what there is for each RDMA device
 * @ibdev: it
 * @dir: in debugfs
 * @lock: guards @session and @result
 * @session: the test that is going on, or NULL
 * @stop: the device goes away
 * @result: line of the last test that ended
 */
struct ktest_device {
	struct ib_device *ibdev;
	struct dentry *dir;
	struct mutex lock; /* @session and @result */
	struct ktest_session *session;
	bool stop;
	char result[KTEST_RESULT_LEN];
};

static struct dentry *ktest_root;

static void ktest_end_session(struct ktest_device *kt)
{
	if (kt->session)
		ktest_session_close(kt->session);
	kfree(kt->session);
	kt->session = NULL;
}

static int ktest_begin_session(struct ktest_device *kt)
{
	unsigned int way = READ_ONCE(poll);
	struct ktest_session *s;
	int err;

	if (way >= ARRAY_SIZE(ktest_polls))
		return -EINVAL;
	s = kzalloc(sizeof(*s), GFP_KERNEL);
	if (!s)
		return -ENOMEM;
	s->ibdev = kt->ibdev;
	s->stop = &kt->stop;
	s->result = kt->result;
	strscpy(kt->result, "FAIL not run\n", sizeof(kt->result));
	err = ktest_session_open(s, ktest_polls[way]);
	if (err)
		kfree(s);
	else
		kt->session = s;
	return err;
}

static ssize_t ktest_local_read(struct file *file, char __user *buf,
				size_t len, loff_t *pos)
{
	struct ktest_device *kt = file->private_data;
	struct ktest_address *addr;
	char line[96];
	int err = 0, n;

	if (mutex_lock_interruptible(&kt->lock))
		return -EINTR;
	if (!kt->session)
		err = ktest_begin_session(kt);
	if (!err) {
		addr = &kt->session->local;
		n = scnprintf(line, sizeof(line), "%u %u %16phN %6phN\n",
			      addr->qpn, addr->psn, addr->gid.raw, addr->mac);
	}
	mutex_unlock(&kt->lock);
	return err ? err : simple_read_from_buffer(buf, len, pos, line, n);
}

static int ktest_parse(const char *line, struct ktest_address *addr)
{
	char gid[33], mac[13];

	if (sscanf(line, "%u %u %32s %12s", &addr->qpn, &addr->psn, gid,
		   mac) != 4)
		return -EINVAL;
	if (strlen(gid) != 32 || hex2bin(addr->gid.raw, gid, 16) ||
	    strlen(mac) != 12 || hex2bin(addr->mac, mac, 6))
		return -EINVAL;
	return 0;
}

/* The text of a write, without its end of line. */
static int ktest_get_line(char *line, size_t size, const char __user *buf,
			  size_t len)
{
	if (len >= size)
		return -EINVAL;
	if (copy_from_user(line, buf, len))
		return -EFAULT;
	line[len] = '\0';
	strim(line);
	return 0;
}

static ssize_t ktest_remote_write(struct file *file, const char __user *buf,
				  size_t len, loff_t *pos)
{
	struct ktest_device *kt = file->private_data;
	struct ktest_address addr;
	char line[96];
	int err;

	err = ktest_get_line(line, sizeof(line), buf, len);
	if (!err)
		err = ktest_parse(line, &addr);
	if (err)
		return err;
	if (mutex_lock_interruptible(&kt->lock))
		return -EINTR;
	err = kt->session ? ktest_session_connect(kt->session, &addr) : -ENOTCONN;
	mutex_unlock(&kt->lock);
	return err ? err : len;
}

static ssize_t ktest_run_write(struct file *file, const char __user *buf,
			       size_t len, loff_t *pos)
{
	struct ktest_device *kt = file->private_data;
	u32 count = clamp(READ_ONCE(rounds), 1, KTEST_MAX_ROUNDS);
	char line[8];
	bool first;
	int err;

	err = ktest_get_line(line, sizeof(line), buf, len);
	if (err)
		return err;
	first = !strcmp(line, "send");
	if (!first && strcmp(line, "recv"))
		return -EINVAL;
	if (mutex_lock_interruptible(&kt->lock))
		return -EINTR;
	err = -ENOTCONN;
	if (kt->session && kt->session->connected) {
		err = ktest_session_run(kt->session, first, count);
		ktest_end_session(kt);
	}
	mutex_unlock(&kt->lock);
	return err ? err : len;
}

static ssize_t ktest_keys_write(struct file *file, const char __user *buf,
				size_t len, loff_t *pos)
{
	struct ktest_device *kt = file->private_data;
	struct keys_sample sample = {
		.every = max(READ_ONCE(cross_every), 1),
		.seed = READ_ONCE(seed) ?: get_random_u32(),
	};
	char name[IB_DEVICE_NAME_MAX];
	struct ib_device *other;
	int err;

	err = ktest_get_line(name, sizeof(name), buf, len);
	if (err)
		return err;
	other = ib_device_get_by_name(name, RDMA_DRIVER_UNKNOWN);
	if (!other)
		return -ENODEV;
	err = mutex_lock_interruptible(&kt->lock);
	if (!err) {
		ktest_end_session(kt);
		err = keys_run(kt->ibdev, other, &sample, &kt->stop,
			       kt->result);
		mutex_unlock(&kt->lock);
	}
	ib_device_put(other);
	return err ? err : len;
}

static ssize_t ktest_own_write(struct file *file, const char __user *buf,
			       size_t len, loff_t *pos)
{
	struct ktest_device *kt = file->private_data;
	u32 count;
	int err;

	err = kstrtou32_from_user(buf, len, 0, &count);
	if (err)
		return err;
	if (mutex_lock_interruptible(&kt->lock))
		return -EINTR;
	ktest_end_session(kt);
	err = own_run(kt->ibdev, count, &kt->stop, kt->result);
	mutex_unlock(&kt->lock);
	return err ? err : len;
}

static ssize_t ktest_user_write(struct file *file, const char __user *buf,
				size_t len, loff_t *pos)
{
	struct ktest_device *kt = file->private_data;
	u64 start = (unsigned long)buf;
	struct ib_pd *pd;
	struct ib_mr *mr;
	int err;

	pd = ib_alloc_pd(kt->ibdev, 0);
	if (IS_ERR(pd))
		return PTR_ERR(pd);
	mr = ib_reg_user_mr(pd, start, len, start, IB_ACCESS_LOCAL_WRITE);
	err = IS_ERR(mr) ? PTR_ERR(mr) : ib_dereg_mr(mr);
	ib_dealloc_pd(pd);
	return err ? err : len;
}

static ssize_t ktest_result_read(struct file *file, char __user *buf,
				 size_t len, loff_t *pos)
{
	struct ktest_device *kt = file->private_data;
	ssize_t ret;

	if (mutex_lock_interruptible(&kt->lock))
		return -EINTR;
	ret = simple_read_from_buffer(buf, len, pos, kt->result,
				      strlen(kt->result));
	mutex_unlock(&kt->lock);
	return ret;
}

static unsigned long ktest_raced;

static ssize_t ktest_race_write(struct file *file, const char __user *buf,
				size_t len, loff_t *pos)
{
	u32 count;
	int err;

	err = kstrtou32_from_user(buf, len, 0, &count);
	if (err)
		return err;
	while (count-- && !signal_pending(current)) {
		ktest_raced++;
		barrier();
		cond_resched();
	}
	return len;
}

static const struct file_operations ktest_race_fops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.write = ktest_race_write,
};

static const struct file_operations ktest_local_fops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.read = ktest_local_read,
};

static const struct file_operations ktest_remote_fops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.write = ktest_remote_write,
};

static const struct file_operations ktest_run_fops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.write = ktest_run_write,
};

static const struct file_operations ktest_keys_fops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.write = ktest_keys_write,
};

static const struct file_operations ktest_own_fops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.write = ktest_own_write,
};

static const struct file_operations ktest_user_fops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.write = ktest_user_write,
};

/* "1": its device sleeps as before hibernation; "0": it wakes. The rest of the machine does not. */
static ssize_t ktest_sleep_write(struct file *file, const char __user *buf,
				 size_t len, loff_t *pos)
{
	struct ktest_device *kt = file->private_data;
	struct device *dev = kt->ibdev->dev.parent;
	const struct dev_pm_ops *pm = dev && dev->bus ? dev->bus->pm : NULL;
	bool sleep;
	int err;

	err = kstrtobool_from_user(buf, len, &sleep);
	if (err)
		return err;
	if (!pm || strcmp(dev->bus->name, "ropcie"))
		return -EOPNOTSUPP;
	/* Whoever unbinds it has the lock, and waits for this. */
	if (!device_trylock(dev))
		return -EAGAIN;
	err = sleep ? pm->freeze(dev) : pm->restore(dev);
	device_unlock(dev);
	return err ?: len;
}

static const struct file_operations ktest_sleep_fops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.write = ktest_sleep_write,
};

static const struct file_operations ktest_result_fops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.read = ktest_result_read,
};

static struct ib_client ktest_client;

static int ktest_add(struct ib_device *ibdev)
{
	struct ktest_device *kt;

	kt = kzalloc(sizeof(*kt), GFP_KERNEL);
	if (!kt)
		return -ENOMEM;
	kt->ibdev = ibdev;
	mutex_init(&kt->lock);
	strscpy(kt->result, "FAIL not run\n", sizeof(kt->result));
	kt->dir = debugfs_create_dir(dev_name(&ibdev->dev), ktest_root);
	debugfs_create_file("local", 0400, kt->dir, kt, &ktest_local_fops);
	debugfs_create_file("remote", 0200, kt->dir, kt, &ktest_remote_fops);
	debugfs_create_file("run", 0200, kt->dir, kt, &ktest_run_fops);
	debugfs_create_file("keys", 0200, kt->dir, kt, &ktest_keys_fops);
	debugfs_create_file("own", 0200, kt->dir, kt, &ktest_own_fops);
	debugfs_create_file("user", 0200, kt->dir, kt, &ktest_user_fops);
	debugfs_create_file("result", 0400, kt->dir, kt, &ktest_result_fops);
	debugfs_create_file("sleep", 0200, kt->dir, kt, &ktest_sleep_fops);
	ib_set_client_data(ibdev, &ktest_client, kt);
	return 0;
}

static void ktest_remove(struct ib_device *ibdev, void *client_data)
{
	struct ktest_device *kt = client_data;

	/* A running test notices, and debugfs waits for its write to return. */
	WRITE_ONCE(kt->stop, true);
	debugfs_remove_recursive(kt->dir);
	ktest_end_session(kt);
	kfree(kt);
}

static struct ib_client ktest_client = {
	.name = "ropcie_ktest",
	.add = ktest_add,
	.remove = ktest_remove,
};

static int __init ktest_init(void)
{
	int err;

	ktest_root = debugfs_create_dir("ropcie_ktest", NULL);
	debugfs_create_file("race", 0200, ktest_root, NULL, &ktest_race_fops);
	err = ib_register_client(&ktest_client);
	if (err)
		debugfs_remove_recursive(ktest_root);
	return err;
}
module_init(ktest_init);

static void __exit ktest_exit(void)
{
	ib_unregister_client(&ktest_client);
	debugfs_remove_recursive(ktest_root);
}
module_exit(ktest_exit);

MODULE_AUTHOR("RoPCIe developers");
MODULE_DESCRIPTION("The kernel's verbs: messages and keys, byte for byte");
MODULE_LICENSE("GPL");
