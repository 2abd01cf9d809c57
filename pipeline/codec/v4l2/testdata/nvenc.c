// SPDX-License-Identifier: Apache-2.0
/* A stand-in for libnvv4l2 and libnvbufsurface of Jetson Linux, with an encoder of H.264 behind /dev/v4l2-nvenc. It is made
 * from NVIDIA's v4l2_nv_extensions.h, nvbufsurface.h and samples (01_video_encode, encoder_unit_sample), and refuses what
 * they forbid or do not do. The encoder has memory of its own, which has what the CPU has written to a plane only after
 * NvBufSurfaceSyncForDevice. Its units have the CRC-32 of the picture in place of slices. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/videodev2.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define IDR_INTERVAL (V4L2_CID_MPEG_BASE + 514) /* v4l2_nv_extensions.h */

enum { PLANES = 3, BUFFERS = 16, PITCH = 256, PAGE = 4096, CAPTURE = V4L2_BUF_TYPE_VIDEO_CAPTURE_MPLANE, OUTPUT = V4L2_BUF_TYPE_VIDEO_OUTPUT_MPLANE };

/* A buffer is one piece of memory. The surface that belongs to its descriptor has all its planes. */
typedef struct NvBufSurface {
	int fd;
	unsigned char *cpu, *device;
} buffer;

static struct queue {
	unsigned planes, pitch[PLANES], lines[PLANES], size[PLANES], offset[PLANES], whole; /* planes is 0 before VIDIOC_S_FMT */
	unsigned count, on;
	buffer buffers[BUFFERS];
	struct v4l2_buffer queued[BUFFERS], done[BUFFERS]; /* with the bytes used in length */
	unsigned waiting, finished;
} coded, pictures;
static int node = -1, subscribed, key, fresh, profile;
static unsigned width, height;
static char why[200];

/* complaint returns why the first call was refused, or "". */
const char *complaint(void) { return why; }

static int refuse(int number, const char *format, ...)
{
	va_list list;
	va_start(list, format);
	if (!*why)
		vsnprintf(why, sizeof why, format, list);
	va_end(list);
	errno = number;
	return -1;
}
#define REFUSE_IF(condition, ...) do { if (condition) return refuse(EINVAL, __VA_ARGS__); } while (0)

static struct queue *of(unsigned type) { return type == CAPTURE ? &coded : type == OUTPUT ? &pictures : NULL; }

/* mine reports whether a file is that of the encoder, which it recognises by its name alone. In JetPack 6 the file is a copy
 * of /dev/null. */
static int mine(const char *file) { return !strcmp(file, "/dev/v4l2-nvenc") || !strcmp(file, "/dev/nvhost-msenc"); }

int v4l2_open(const char *file, int flags, ...)
{
	if (!mine(file))
		return open(file, flags);
	if (node >= 0)
		return refuse(EBUSY, "v4l2_open: it is open");
	memset(&coded, 0, sizeof coded), memset(&pictures, 0, sizeof pictures);
	subscribed = *why = 0, key = fresh = 1, profile = -1;
	return node = open("/dev/null", flags);
}

int v4l2_close(int fd)
{
	if (fd == node) {
		if (coded.count || pictures.count)
			refuse(EINVAL, "v4l2_close: buffers are left");
		node = -1;
	}
	return close(fd);
}

static int set_format(struct v4l2_format *f)
{
	struct queue *q = of(f->type);
	struct v4l2_pix_format_mplane *m = &f->fmt.pix_mp;
	REFUSE_IF(!q || coded.count || pictures.count, "VIDIOC_S_FMT: type %u, %u and %u buffers", f->type, coded.count, pictures.count);
	REFUSE_IF(!m->width || !m->height || (m->width | m->height) & 1, "VIDIOC_S_FMT: %ux%u", m->width, m->height);
	width = m->width, height = m->height;
	if (q == &coded) {
		REFUSE_IF(m->pixelformat != V4L2_PIX_FMT_H264 || m->num_planes != 1 || !m->plane_fmt[0].sizeimage, "VIDIOC_S_FMT: coded data");
		q->planes = 1, q->size[0] = q->whole = (m->plane_fmt[0].sizeimage + PAGE - 1) / PAGE * PAGE;
		m->plane_fmt[0].sizeimage = q->whole;
		return 0;
	}
	REFUSE_IF(!coded.planes, "VIDIOC_S_FMT: the pictures' before that of the coded data");
	REFUSE_IF(m->pixelformat != V4L2_PIX_FMT_YUV420M || m->num_planes != PLANES, "VIDIOC_S_FMT: %u planes of %#x", m->num_planes, m->pixelformat);
	q->planes = PLANES, q->whole = 0;
	for (unsigned i = 0; i < PLANES; i++) {
		q->pitch[i] = ((i ? width / 2 : width) + PITCH - 1) / PITCH * PITCH, q->lines[i] = i ? height / 2 : height;
		q->size[i] = (q->pitch[i] * q->lines[i] + PAGE - 1) / PAGE * PAGE;
		q->offset[i] = q->whole, q->whole += q->size[i];
		m->plane_fmt[i].bytesperline = q->pitch[i], m->plane_fmt[i].sizeimage = q->size[i];
	}
	return 0;
}

static int set_control(struct v4l2_ext_controls *k)
{
	struct v4l2_ext_control *c = k->controls;
	REFUSE_IF(!pictures.planes, "VIDIOC_S_EXT_CTRLS: before the formats");
	if (k->ctrl_class != V4L2_CTRL_CLASS_MPEG || k->count != 1)
		return refuse(EINVAL, "VIDIOC_S_EXT_CTRLS: class %#x, %u controls", k->ctrl_class, k->count);
	switch (c->id) {
	case V4L2_CID_MPEG_MFC51_VIDEO_FORCE_FRAME_TYPE:
		return key = 1, 0;
	case V4L2_CID_MPEG_VIDEO_BITRATE:
		REFUSE_IF(c->value <= 0, "VIDIOC_S_EXT_CTRLS: bit rate %d", c->value);
		return 0;
	}
	REFUSE_IF(coded.count || pictures.count, "VIDIOC_S_EXT_CTRLS: %#x after the buffers were requested", c->id);
	switch (c->id) {
	case V4L2_CID_MPEG_VIDEO_H264_PROFILE:
		if (c->value == V4L2_MPEG_VIDEO_H264_PROFILE_BASELINE || c->value == V4L2_MPEG_VIDEO_H264_PROFILE_MAIN ||
		    c->value == V4L2_MPEG_VIDEO_H264_PROFILE_HIGH)
			return profile = c->value, 0;
		break;
	case V4L2_CID_MPEG_VIDEO_BITRATE_MODE: case V4L2_CID_MPEG_VIDEO_GOP_SIZE: case V4L2_CID_MPEG_VIDEO_H264_LEVEL:
	case V4L2_CID_MPEG_VIDEO_FRAME_RC_ENABLE: case IDR_INTERVAL:
		return 0;
	}
	errno = EINVAL; /* no complaint: it is asked whether it has a control */
	return -1;
}

static int request_buffers(struct v4l2_requestbuffers *r)
{
	struct queue *q = of(r->type);
	REFUSE_IF(!q || r->memory != V4L2_MEMORY_MMAP || !pictures.planes || r->count > BUFFERS, "VIDIOC_REQBUFS: %u buffers, memory %u", r->count, r->memory);
	REFUSE_IF(q->on || (r->count && q->count), "VIDIOC_REQBUFS: the queue is in use");
	for (unsigned i = 0; i < q->count; i++) {
		struct stat about;
		if (fstat(q->buffers[i].fd, &about) || about.st_size != q->whole)
			refuse(EINVAL, "VIDIOC_REQBUFS: the descriptor of buffer %u is closed", i);
		close(q->buffers[i].fd);
		munmap(q->buffers[i].cpu, q->whole), free(q->buffers[i].device);
	}
	for (unsigned i = 0; i < r->count; i++) {
		buffer *b = &q->buffers[i];
		b->fd = memfd_create("buffer", MFD_CLOEXEC);
		b->device = calloc(1, q->whole);
		if (b->fd < 0 || ftruncate(b->fd, q->whole))
			return -1;
		b->cpu = mmap(NULL, q->whole, PROT_READ | PROT_WRITE, MAP_SHARED, b->fd, 0);
	}
	q->count = r->count, q->finished = q->waiting = 0;
	return 0;
}

static int query_buffer(struct v4l2_buffer *b)
{
	struct queue *q = of(b->type);
	REFUSE_IF(!q || b->index >= q->count || b->length != q->planes, "VIDIOC_QUERYBUF: buffer %u, %u planes", b->index, b->length);
	for (unsigned i = 0; i < q->planes; i++)
		b->m.planes[i].length = q->size[i], b->m.planes[i].m.mem_offset = q->offset[i];
	return 0;
}

static int export_buffer(struct v4l2_exportbuffer *x)
{
	struct queue *q = of(x->type);
	REFUSE_IF(!q || x->index >= q->count || x->plane >= q->planes, "VIDIOC_EXPBUF: buffer %u, plane %u", x->index, x->plane);
	x->fd = q->buffers[x->index].fd;
	return 0;
}

int NvBufSurfaceFromFd(int fd, void **surface)
{
	for (unsigned i = 0; i < 2 * BUFFERS; i++) {
		struct queue *q = i < BUFFERS ? &pictures : &coded;
		if (i % BUFFERS < q->count && q->buffers[i % BUFFERS].fd == fd)
			return *surface = &q->buffers[i % BUFFERS], 0;
	}
	return refuse(EINVAL, "NvBufSurfaceFromFd: descriptor %d is that of no buffer", fd);
}

int NvBufSurfaceSyncForDevice(struct NvBufSurface *surface, int index, int plane)
{
	buffer *b = surface;
	REFUSE_IF(b < pictures.buffers || b >= pictures.buffers + pictures.count, "NvBufSurfaceSyncForDevice: no surface of a picture");
	REFUSE_IF(index < -1 || index > 0 || plane < -1 || plane >= PLANES, "NvBufSurfaceSyncForDevice: buffer %d, plane %d", index, plane);
	for (int i = 0; i < PLANES; i++)
		if (plane < 0 || plane == i)
			memcpy(b->device + pictures.offset[i], b->cpu + pictures.offset[i], pictures.size[i]);
	return 0;
}

static uint32_t crc(uint32_t sum, const unsigned char *data, unsigned length)
{
	for (unsigned i = 0; i < length; i++) {
		sum ^= data[i];
		for (int bit = 0; bit < 8; bit++)
			sum = sum >> 1 ^ (sum & 1 ? 0xedb88320 : 0);
	}
	return sum;
}

/* checksum returns the CRC-32 of a picture as I420, as the encoder sees it. */
static uint32_t checksum(const buffer *b)
{
	uint32_t sum = ~0u;
	for (unsigned i = 0; i < PLANES; i++)
		for (unsigned y = 0; y < pictures.lines[i]; y++)
			sum = crc(sum, b->device + pictures.offset[i] + y * pictures.pitch[i], i ? width / 2 : width);
	return ~sum;
}

/* deliver fills the next buffer for coded data. */
static void deliver(const void *data, unsigned length, struct timeval stamp, unsigned flags)
{
	struct v4l2_buffer done = coded.queued[0];
	memmove(coded.queued, coded.queued + 1, --coded.waiting * sizeof done);
	memcpy(coded.buffers[done.index].cpu, data, length);
	done.timestamp = stamp, done.flags = flags, done.length = length;
	coded.done[coded.finished++] = done;
}

/* work encodes the pictures that are queued, as far as there are buffers for coded data. The first buffer of coded data has the
 * parameter sets alone, and they are not repeated. An empty picture ends the coded data with an empty buffer ("EOS Handling"
 * in v4l2_nv_extensions.h). */
static void work(void)
{
	const unsigned char sets[] = { 0, 0, 0, 1, 0x67, 66, 192, 30, 0, 0, 0, 1, 0x68, 1, 2, profile + 2 };
	const struct timeval none = { 0 };
	while (pictures.waiting && coded.waiting) {
		struct v4l2_buffer picture = pictures.queued[0];
		if (fresh && picture.length) {
			deliver(sets, sizeof sets, none, 0), fresh = 0;
			continue;
		}
		memmove(pictures.queued, pictures.queued + 1, --pictures.waiting * sizeof picture);
		pictures.done[pictures.finished++] = picture;
		if (!picture.length) {
			deliver("", 0, none, V4L2_BUF_FLAG_LAST);
			continue;
		}
		unsigned char unit[9] = { 0, 0, 0, 1, key ? 0x65 : 0x41 };
		uint32_t sum = checksum(&pictures.buffers[picture.index]);
		memcpy(unit + 5, &sum, 4), key = 0;
		deliver(unit, sizeof unit, picture.flags & V4L2_BUF_FLAG_TIMESTAMP_COPY ? picture.timestamp : none, 0);
	}
}

static int enqueue(const struct v4l2_buffer *b)
{
	struct queue *q = of(b->type);
	REFUSE_IF(!q || b->index >= q->count || b->length != q->planes || b->memory != V4L2_MEMORY_MMAP, "VIDIOC_QBUF: buffer %u", b->index);
	REFUSE_IF(q->waiting >= q->count, "VIDIOC_QBUF: more than %u buffers", q->count);
	struct v4l2_buffer waiting = *b;
	waiting.length = 0;
	if (q == &pictures) {
		waiting.length = b->m.planes[0].bytesused;
		REFUSE_IF(!coded.on || !pictures.on, "VIDIOC_QBUF: a picture before VIDIOC_STREAMON");
		REFUSE_IF(!waiting.length && !subscribed, "VIDIOC_QBUF: the end, and nobody has subscribed to V4L2_EVENT_EOS");
		for (unsigned i = 0; i < PLANES && waiting.length; i++)
			REFUSE_IF(b->m.planes[i].bytesused != q->pitch[i] * q->lines[i], "VIDIOC_QBUF: %u bytes of plane %u", b->m.planes[i].bytesused, i);
	}
	q->queued[q->waiting++] = waiting;
	work();
	return 0;
}

static int dequeue(struct v4l2_buffer *b)
{
	struct queue *q = of(b->type);
	REFUSE_IF(!q || !b->m.planes || b->memory != V4L2_MEMORY_MMAP, "VIDIOC_DQBUF: type %u", b->type);
	if (!q->finished) {
		errno = EAGAIN;
		return -1;
	}
	b->index = q->done[0].index, b->flags = q->done[0].flags, b->timestamp = q->done[0].timestamp;
	b->m.planes[0].bytesused = q->done[0].length;
	memmove(q->done, q->done + 1, --q->finished * sizeof *q->done);
	return 0;
}

static int stream(unsigned type, unsigned on)
{
	struct queue *q = of(type);
	REFUSE_IF(!q || (on && (!coded.count || !pictures.count)), "VIDIOC_STREAMON: type %u, %u and %u buffers", type, coded.count, pictures.count);
	q->on = on;
	return 0;
}

int v4l2_ioctl(int fd, unsigned long request, ...)
{
	va_list list;
	va_start(list, request);
	void *at = va_arg(list, void *);
	va_end(list);
	if (fd != node)
		return ioctl(fd, request, at);
	switch (request) {
	case VIDIOC_QUERYCAP:
		return ((struct v4l2_capability *)at)->capabilities = V4L2_CAP_VIDEO_M2M_MPLANE, 0;
	case VIDIOC_S_FMT:
		return set_format(at);
	case VIDIOC_S_EXT_CTRLS:
		return set_control(at);
	case VIDIOC_S_PARM:
		REFUSE_IF(!pictures.planes || !((struct v4l2_streamparm *)at)->parm.output.timeperframe.denominator, "VIDIOC_S_PARM: before the formats");
		return 0;
	case VIDIOC_REQBUFS:
		return request_buffers(at);
	case VIDIOC_QUERYBUF:
		return query_buffer(at);
	case VIDIOC_EXPBUF:
		return export_buffer(at);
	case VIDIOC_SUBSCRIBE_EVENT:
		REFUSE_IF(((struct v4l2_event_subscription *)at)->type != V4L2_EVENT_EOS, "VIDIOC_SUBSCRIBE_EVENT: no end");
		return subscribed = 1, 0;
	case VIDIOC_QBUF:
		return enqueue(at);
	case VIDIOC_DQBUF:
		return dequeue(at);
	case VIDIOC_STREAMON:
	case VIDIOC_STREAMOFF:
		return stream(*(unsigned *)at, request == VIDIOC_STREAMON);
	}
	return refuse(ENOTTY, "request %#lx, which NVIDIA's samples do not make", request);
}
