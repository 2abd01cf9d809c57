/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the files of tegra_p2p share. Functions and variables are grouped by file. A file uses those
 * of files further down only.
 *
 * Locks, outermost first (docs/module.md says why):
 *
 *   control_lock → the function's device lock (tried) → files_lock → file lock, bar_lock
 *   mmap_lock → file lock, bar_lock                    in mmap and its faults
 *   mmap_lock → notifier SRCU → pin lock → fence_lock → provider's lock → spinlocks
 *
 * A revocation takes none of the first line's. It runs inside the notifier, so with its pin's lock
 * and fence_lock held nobody copies to or from user space, gets or puts pages, or enters reclaim,
 * which calls notifiers itself.
 */
#ifndef TEGRA_P2P_H_INTERNAL
#define TEGRA_P2P_H_INTERNAL

#include <linux/cdev.h>
#include <linux/hashtable.h>
#include <linux/interval_tree.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mmu_notifier.h>
#include <linux/mutex.h>
#include <linux/scatterlist.h>
#include <linux/sizes.h>
#include <linux/srcu.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "compat.h"
#include "tegra_p2p.h"

#define TP_MAX_PINS	1024			/* of an open file, with allocations */
#define TP_MAX_BYTES	SZ_1G			/* of one: nv-p2p counts pages in an int */
#define TP_MAX_ALLOC	SZ_64M			/* of one allocation: descriptors, not frames */
#define TP_MAX_VECTORS	64
#define TP_LAST_HANDLE	((1U << 20) - 1)
#define TP_EXPECT_ANY	U32_MAX
#define TP_DIRECTIONS	(TEGRA_P2P_PIN_TO_DEVICE | TEGRA_P2P_PIN_FROM_DEVICE)
#define TP_BARS		6			/* PCI_STD_NUM_BARS */
/* mmap offset: a BAR's index or 8 + a handle, and the byte in it */
#define TP_MMAP_SHIFT	40
#define TP_FIRST_HANDLE_SLOT 8			/* allocations; then pins */
#define TP_FIRST_PIN_SLOT (TP_FIRST_HANDLE_SLOT + TP_LAST_HANDLE + 1)
/* pages of ones that an open file may have, and one for the rest */
#define TP_ONES		256
#define TP_FENCES	16			/* that debugfs shows */
#define TP_FUNCTIONS	256			/* that have a device file at the same time */
#define TP_RESET_TRIES	50			/* while somebody else has the function's lock */
#define TP_RESET_WAIT	20			/* milliseconds between two of them */
/* that share grace periods; more take longer to start than they save */
#define TP_WORKERS	128

struct tp_file;
struct tp_pin;
struct nvidia_p2p_page_table;
struct nvidia_p2p_dma_mapping;

struct tp_vector {
	struct pci_dev *line;	/* whose legacy line it is; NULL for a message */
	spinlock_t lock;	/* ctx, against the handler */
	struct eventfd_ctx *ctx;
	struct tp_file *owner;
};

struct tp_halt_op {
	u32 op;
	void __iomem *page;	/* one ioremap for each */
	void __iomem *reg;
	u64 value, mask;
};

struct tp_halt_list {
	u32 n;
	struct tp_halt_op ops[TEGRA_P2P_HALT_OPS];
};

/* Why a function is fenced: an error (TEGRA_P2P_ERROR_*), or one of these. */
enum tp_fence_why {
	TP_FENCE_REVOKED = TEGRA_P2P_ERROR_UNPLUG + 1,
	TP_FENCE_CLOSED,	/* with memory left behind */
	TP_FENCE_ASKED,
	TP_FENCE_WHYS,
};

struct tp_fence_record {
	u64 gen;
	u32 why;
	u32 halt_us;		/* how long the halt list took */
	ktime_t when;		/* real time, after it was done */
};

/*
 * The pins of an address space, of all files of a function, by address. They are looked at by one
 * worker, which waits while mappings of the address space change, and so holds up no others'.
 */
struct tp_space {
	struct kref ref;		/* of being listed, and of the worker's next run */
	struct hlist_node entry;	/* of dev->spaces */
	struct tp_dev *dev;		/* a pin that is listed, and a run, have a reference */
	struct mm_struct *mm;
	struct rb_root_cached pins;
	unsigned long n;		/* of them */
	struct list_head checks;	/* of pins to look at; each has a reference */
	struct delayed_work work;
	unsigned long due;		/* when the worker runs next, in jiffies, */
	bool queued;			/* if it does */
};

/* A PCI function. It outlives its driver as long as a file is open. */
struct tp_dev {
	struct device device;		/* its reference is the function's */
	struct cdev cdev;
	struct pci_dev *pdev;		/* referenced; touched while !gone */
	int id;
	char name[24];
	u32 dma_bits;
	u32 n_irqs;
	bool intx;			/* the one is the legacy line */
	bool exposed;			/* no IOMMU can hold it back: ATS, or a group with others */
	bool isolated_msi;		/* as probe found it: asking takes locks */
	struct notifier_block neighbours;
	int msix_bar;			/* -1 for none */
	u64 msix_first, msix_last;	/* pages of the MSI-X table in that BAR: never mapped */
	bool flr;
	/* FLR is to clear what was left in it; under control_lock */
	bool used;
	struct pci_saved_state *saved;	/* configuration space as probe left it */
	struct dentry *debug;

	struct srcu_struct srcu;	/* held while a call works with the function */
	/* set once, then synchronize_srcu; under bar_lock for faults */
	bool gone;
	/* set once, when the machine ends: nothing is unmapped from then on */
	bool over;

	struct mutex fence_lock;	/* the fields below, and bus mastering */
	u32 state;
	u64 fence_gen;
	unsigned long away;		/* bits of TEGRA_P2P_ERROR_*: its registers do not answer */
	bool halted;			/* the list has run since the last RESUME */
	/* descriptors that can be written; changed under control_lock, too */
	unsigned int opens;
	struct list_head writers;	/* of files, in the order of their opens */
	u32 error, errors;		/* the last error event, and how many there were */
	struct tp_halt_list *halt;
	struct tp_file *halt_owner;
	struct tp_fence_record fences[TP_FENCES]; /* that of generation g in [g % TP_FENCES] */

	struct mutex files_lock;	/* files */
	struct list_head files;
	spinlock_t pins_lock;		/* spaces, and the pins in them */
	DECLARE_HASHTABLE(spaces, 6);	/* struct tp_space by address space, for overlaps */

	/* of the page of a BAR that is smaller, so that it can be mapped */
	struct resource *rest[TP_BARS];

	/* one RESUME or reset at a time, and the two fields below */
	struct mutex control_lock;
	atomic_t reset_asked;		/* a CONTROL RESET has the lock or waits for it */
	struct task_struct *resetting;	/* this task resets the function, */
	struct tp_file *resetter;	/* asked by this file, which needs not be told */
	struct mutex bar_lock;		/* no fault maps a BAR while it is held */
	struct mutex irq_lock;		/* owners of vectors */
	struct tp_vector vectors[TP_MAX_VECTORS];
};

struct tp_file {
	struct kref ref;		/* the open file's, and one of each object */
	struct tp_dev *dev;
	struct list_head entry;		/* of dev->files */
	struct list_head writing;	/* of dev->writers, if it is a writer; under fence_lock */
	struct address_space *mapping;
	/* opened by one who may use a function that no IOMMU holds back */
	bool unsafe;
	bool writer;			/* the descriptor can be written */
	struct pid *opener;
	kuid_t user;
	/* pages that stand for registers which are out of reach; under bar_lock */
	struct xarray ones;
	u32 ones_count;

	struct mutex lock;		/* objects, count */
	struct xarray objects;		/* struct tp_object by handle */
	u32 next_handle;
	u32 count;
	atomic64_t bytes;

	spinlock_t event_lock;		/* the eventfds */
	struct eventfd_ctx *revoke, *error;
};

struct tp_object;

/* The kinds of objects: tp_pin_ops and tp_mem_ops. */
struct tp_object_ops {
	u64 first_slot;			/* of mmap offsets, to which the handle is added */
	bool charges_user;		/* the memory can outlive the caller's address space */
	/*
	 * The function cannot reach the memory any more when this returns. Under file->lock, and
	 * again without it when the object is in no table any more. The function is there, or has
	 * been told to forget the memory.
	 */
	void (*end)(struct tp_object *obj);
	/* After end, or NULL: begins what finish waits for. No lock is held. */
	void (*begin_finish)(struct tp_object *obj);
	/* After begin_finish, or NULL: whether finish may wait for another process's threads. */
	bool (*of_others)(struct tp_object *obj);
	/* After end: gives back the rest, and may wait. No lock is held. */
	void (*finish)(struct tp_object *obj);
	/* The last reference has gone. */
	void (*free)(struct tp_object *obj);
	/* Under file->lock: whether the function may be at work on the memory. */
	bool (*busy)(struct tp_object *obj);
	/* Under file->lock: the function goes. */
	void (*unplug)(struct tp_object *obj);
};

/* What a handle stands for. */
struct tp_object {
	struct kref ref;
	const struct tp_object_ops *ops;
	struct tp_file *file;		/* outlives it */
	u32 handle;
	u64 size;
	struct mm_struct *mm;		/* charged, and referenced until uncharged */
	/* its user is charged as well for memory that is not the caller's; else NULL */
	const struct cred *cred;
	atomic_t vmas;
	bool charged;
};

/* Coherent memory of the kernel. */
struct tp_mem {
	struct tp_object obj;
	void *cpu;			/* NULL once freed; under file->lock */
	dma_addr_t iova;
	struct sg_table pages;		/* of cpu */
};

enum tp_pin_state {
	TP_PINNING,	/* not mapped for the function yet */
	TP_LIVE,
	TP_REVOKED,
	TP_ENDED,	/* PUT or closed */
};

struct tp_pin {
	struct tp_object obj;
	struct interval_tree_node node;	/* of its space, until it is no longer in the way */
	/* under dev->pins_lock: */
	struct tp_space *space;		/* while it is listed there */
	struct list_head check;		/* of space->checks */
	unsigned long check_at;		/* not before, in jiffies */

	u64 va, cookie;
	bool writable;			/* the caller may write the memory */
	bool of_driver;			/* it is of a character device, not of a file or nobody's */
	bool cached;			/* of a file in the page cache */
	bool no_fault;			/* a file's, which is not read in with mmap_lock held */
	enum dma_data_direction direction;
	u32 attr;			/* TEGRA_P2P_ATTR_* */
	u32 expect;			/* the same, or TP_EXPECT_ANY */

	struct mutex lock;		/* the fields below */
	enum tp_pin_state state;
	bool doomed;			/* revoked while TP_PINNING: it will not be mapped */
	u32 reason;
	u64 fence_gen;
	u32 nsegs;
	struct tegra_p2p_segment *segs;	/* until the pin is freed */

	struct work_struct work;	/* gives back what a revocation could not */
	bool got, finished;		/* the back end's get, and its put, were done */
	/* by the back end's provider: our reference has gone with it */
	bool mm_dropped;

	union {
		struct {
			struct mmu_interval_notifier notifier;
			struct page **pages;
			unsigned long n;
			struct sg_table sgt;
			bool mapped, files; /* some of its pages are of a file */
			struct mutex checking;	/* a worker looks at pages */
			/* ends the address space; holds a reference of the pin */
			struct work_struct mm_work;
			/* pages to look at again: first > last for none */
			unsigned long check_first, check_last;
			u32 checks;
			unsigned long later; /* ticks until the next look at unmapped pages */
		} gup;
		struct {
			struct nvidia_p2p_page_table *table;
			struct nvidia_p2p_dma_mapping *mapping;
			struct task_struct *putting;	/* runs put_pages, which calls back */
			/* an invalidation has taken the notifier out: no put_pages */
			bool unhashed;
			bool freed;
			bool queued;	/* SRCU is to end the notifier, and says so: */
			struct completion released;
			struct mmu_notifier_ops ops; /* the provider's, but for free_notifier */
		} nv;
	};
};

/*
 * A way to pin user memory. A back end calls tp_pin_revoke when the memory is taken away. get()
 * checks the range with tp_check_vma and fails with an errno of PIN.
 */
struct tp_backend {
	const char *name;
	u32 info;
	bool (*present)(void);
	/* Pages and notifier. No lock is held. A failure leaves nothing. */
	int (*get)(struct tp_pin *pin);
	/*
	 * Under pin->lock and fence_lock, without reclaim: maps for DMA and calls tp_pin_segment
	 * for each range. Room comes from tp_pin_segments, which get may have called.
	 */
	int (*map)(struct tp_pin *pin, struct device *dev);
	/*
	 * Under pin->lock: the function cannot reach the memory any more. in_callback: in the
	 * notifier.
	 */
	void (*unmap)(struct tp_pin *pin, bool in_callback);
	/* Looks whether the pin is what it was, as tp_pin_check has asked. No lock is held. */
	void (*check)(struct tp_pin *pin);
	/* Gives back the rest, once, and waits for callbacks. No lock is held. */
	void (*put)(struct tp_pin *pin);
	/* Under pin->lock of a live pin. */
	struct page **(*pages)(struct tp_pin *pin);
};

/* file.c */
extern const struct file_operations tp_fops;
extern u32 tp_nvp2p_info;			/* flags of GET_INFO */

/* control.c */
long tp_control(struct tp_file *file, void *arg);

/* lost.c */
extern const struct pci_error_handlers tp_errors;
extern const struct dev_pm_ops tp_pm;
bool tp_has_flr(struct pci_dev *pdev);
void tp_lost(struct tp_dev *dev, u32 error);
int tp_neighbours_watch(struct tp_dev *dev);
void tp_neighbours_unwatch(struct tp_dev *dev);
void tp_shutdown(struct pci_dev *pdev);
long tp_reset(struct tp_file *file);
int tp_writer_in(struct tp_file *file, bool share);
void tp_writer_out(struct tp_file *file);
void tp_reset_for_next(struct tp_dev *dev);

/* halt.c */
long tp_set_halt(struct tp_file *file, void *arg);
void tp_halt_release(struct tp_dev *dev, struct tp_file *owner);

/* mmap.c */
int tp_mmap(struct file *filp, struct vm_area_struct *vma);
void tp_zap_bars(struct tp_dev *dev);
void tp_zap_gone(struct tp_dev *dev);
void tp_free_ones(struct tp_file *file);
bool tp_hidden(struct tp_dev *dev, u32 bar, u64 off);
void tp_reserve_pages(struct tp_dev *dev);
void tp_unreserve_pages(struct tp_dev *dev);
long tp_get_region(struct tp_file *file, void *arg);

/* debug.c */
void tp_debug_init(void);
void tp_debug_exit(void);
void tp_debug_add(struct tp_dev *dev);
void tp_debug_remove(struct tp_dev *dev);

/* backend_gup.c */
extern const struct tp_backend tp_backend_gup;
/* ends address spaces whose last user is a check */
extern struct workqueue_struct *tp_mm_wq;

/* backend_nvp2p.c */
extern const struct tp_backend tp_backend_nvp2p;
bool tp_nvp2p_foreign(void);
void tp_nvp2p_exit(void);

/* pin.c */
long tp_pin(struct tp_file *file, void *arg);
long tp_query(struct tp_file *file, void *arg);
int tp_check_vma(struct tp_pin *pin);
int tp_pin_fault_in(struct tp_pin *pin);
int tp_pin_segments(struct tp_pin *pin, u32 n);
void tp_pin_segment(struct tp_pin *pin, u64 iova, u64 len);

/* mem.c */
extern const struct tp_object_ops tp_mem_ops;
long tp_alloc(struct tp_file *file, void *arg);

/* revoke.c */
extern const struct tp_object_ops tp_pin_ops;
extern struct kmem_cache *tp_pin_cache;
extern struct workqueue_struct *tp_wq;		/* gives pins back */
void tp_pin_revoke(struct tp_pin *pin, u32 reason, bool in_callback);
void tp_pins_end_mm(struct tp_dev *dev, struct mm_struct *mm);
void tp_pin_work(struct work_struct *work);
void tp_pin_end(struct tp_object *obj);
void tp_pin_free(struct tp_object *obj);

/* space.c */
extern const struct tp_backend *tp_backend;	/* the one that pins go through */
extern struct workqueue_struct *tp_check_wq;	/* looks whether pins are what they were */
struct tp_space *tp_space_of(struct tp_dev *dev, struct mm_struct *mm);
int tp_pin_list(struct tp_pin *pin);
void tp_pin_unlist(struct tp_pin *pin);
void tp_pin_check(struct tp_pin *pin, unsigned long ticks);

/* object.c */
int tp_object_init(struct tp_object *obj, struct tp_file *file, u64 size,
		   const struct tp_object_ops *ops);
void tp_object_publish(struct tp_object *obj);
void tp_object_withdraw(struct tp_object *obj);
void tp_object_drop(struct tp_object *obj);
void tp_object_uncharge(struct tp_object *obj, bool mm_dropped);
struct tp_object *tp_object_get(struct tp_file *file, u32 handle);
void tp_object_put(struct tp_object *obj);
u64 tp_object_offset(struct tp_object *obj);
long tp_put(struct tp_file *file, void *arg);
void tp_file_end(struct tp_file *file);
void tp_file_finish(struct tp_file *file);
void tp_file_unplug(struct tp_file *file);
void tp_file_put(struct tp_file *file);

/* fence.c */
u64 tp_fence(struct tp_dev *dev, u32 why, unsigned long away);
void tp_fence_only(struct tp_dev *dev);
void tp_stop(struct tp_dev *dev, u32 why, unsigned long away);
void tp_master_on(struct tp_dev *dev);

/* event.c */
long tp_set_event(struct tp_file *file, void *arg);
void tp_signal_revoke(struct tp_file *file);
void tp_signal_error(struct tp_file *file);
void tp_events_release(struct tp_file *file);
long tp_unmask(struct tp_file *file);
void tp_vectors_request(struct tp_dev *dev);
void tp_vectors_free(struct tp_dev *dev);
void tp_vectors_release(struct tp_file *owner);

/* protection.c */
int tp_protection_probe(struct tp_dev *dev);
void tp_find_exposure(struct tp_dev *dev);
bool tp_expose(struct tp_dev *dev, const char *why);
bool tp_is_neighbour(struct tp_dev *dev, struct device *other);
u32 tp_protection(struct tp_dev *dev);
bool tp_protected(struct tp_dev *dev);
bool tp_bounced(struct device *dev, dma_addr_t addr);
int tp_may_open(struct tp_dev *dev, bool *unsafe);
int tp_may_use(struct tp_dev *dev, bool allowed);

/**
 * tp_to_pin() - Returns the pin that an object is part of.
 * @obj: the object, of tp_pin_ops
 *
 * Return: the pin.
 */
static inline struct tp_pin *tp_to_pin(struct tp_object *obj)
{
	return container_of(obj, struct tp_pin, obj);
}

/**
 * tp_to_mem() - Returns the coherent memory that an object is part of.
 * @obj: the object, of tp_mem_ops
 *
 * Return: the memory.
 */
static inline struct tp_mem *tp_to_mem(struct tp_object *obj)
{
	return container_of(obj, struct tp_mem, obj);
}

#endif
