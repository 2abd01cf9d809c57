/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A receiver of frames by UCX, written from docs/ucx.md and UCX's headers alone: receiver ADDRESS PORT STREAM FRAMES.
 * It prints a line for each frame. Its status is 0 if all came and were right, 1 if not, and 2 if it cannot begin.
 */
#include <arpa/inet.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucp/api/ucp.h>

#ifndef SEND_FLAGS /* a test leaves one out */
#define SEND_FLAGS (UCP_AM_SEND_FLAG_EAGER | UCP_AM_SEND_FLAG_REPLY)
#endif

enum { HELLO = 1, WELCOME, BYE, SUBSCRIBE, ACCEPT, CREDIT, FRAME, RESULTS, STATE };

static ucp_worker_h worker;
static ucp_ep_h ep;
static const char *stream;
static unsigned wanted, received, wrong;
static int accepted, ended;

struct frame {
	uint64_t number, bytes;
	uint32_t by, crc;
	uint8_t pixels[];
};

static uint64_t get(const uint8_t *p, int bytes)
{
	uint64_t v = 0;
	for (int i = 0; i < bytes; i++)
		v |= (uint64_t)p[i] << 8 * i;
	return v;
}

static uint8_t *put(uint8_t *p, uint64_t v, int bytes)
{
	for (int i = 0; i < bytes; i++)
		*p++ = v >> 8 * i;
	return p;
}

static uint8_t *text(uint8_t *p, const char *s)
{
	*p++ = strlen(s);
	memcpy(p, s, strlen(s));
	return p + strlen(s);
}

static uint32_t crc32c(const uint8_t *p, uint64_t n)
{
	static uint32_t table[256];
	for (uint32_t i = 0; i < 256 && !table[255]; i++) {
		uint32_t c = i;
		for (int k = 0; k < 8; k++)
			c = c >> 1 ^ (c & 1 ? 0x82f63b78 : 0);
		table[i] = c;
	}
	uint32_t c = ~0u;
	while (n--)
		c = c >> 8 ^ table[(c ^ *p++) & 255];
	return ~c;
}

static void sent(void *request, ucs_status_t status, void *data)
{
	free(data);
	ucp_request_free(request);
}

static void send_message(unsigned id, const uint8_t *data, size_t bytes)
{
	uint8_t *copy = memcpy(malloc(bytes), data, bytes); /* UCX reads it until the request has ended */
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
		.flags = SEND_FLAGS,
		.cb.send = sent,
		.user_data = copy,
	};
	ucs_status_ptr_t r = ucp_am_send_nbx(ep, id, NULL, 0, copy, bytes, &param);
	if (UCS_PTR_IS_PTR(r))
		return;
	free(copy);
	if (UCS_PTR_IS_ERR(r)) {
		printf("message %u: %s\n", id, ucs_status_string(UCS_PTR_STATUS(r)));
		ended = 1;
	}
}

static void send_credits(uint32_t n)
{
	uint8_t b[4];
	put(b, n, 4);
	send_message(CREDIT, b, 4);
}

static void finish(struct frame *f, ucs_status_t status)
{
	uint32_t crc = status ? 0 : crc32c(f->pixels, f->bytes);
	int ok = !status && f->by && crc == f->crc;
	if (!ended && received < wanted) {
		printf("frame %llu bytes %llu crc %08x by %u computed %08x %s\n", (unsigned long long)f->number,
		       (unsigned long long)f->bytes, f->crc, f->by, crc, status ? ucs_status_string(status) : ok ? "ok" : "WRONG");
		wrong += !ok;
		received++;
		send_credits(1);
	}
	free(f);
}

static void fetched(void *request, ucs_status_t status, size_t length, void *f)
{
	ucp_request_free(request);
	finish(f, status);
}

static ucs_status_t on_frame(void *arg, const void *header, size_t header_length, void *data, size_t length,
			     const ucp_am_recv_param_t *how)
{
	const uint8_t *h = header;
	if (header_length != 112 || get(h + 104, 8) != length || !(how->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV)) {
		printf("frame with a header of %zu bytes and %zu bytes of pixels, flags %#llx\n", header_length, length,
		       (unsigned long long)how->recv_attr);
		ended = 1;
		return UCS_OK;
	}
	struct frame *f = malloc(sizeof *f + length);
	*f = (struct frame){get(h, 8), length, get(h + 92, 4), get(h + 96, 4)};
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
		.cb.recv_am = fetched,
		.user_data = f,
	};
	ucs_status_ptr_t r = ucp_am_recv_data_nbx(worker, data, f->pixels, length, &param);
	if (!UCS_PTR_IS_PTR(r))
		finish(f, UCS_PTR_STATUS(r));
	return UCS_OK; /* the fetch has begun, so UCX keeps the message */
}

static void subscribe(void)
{
	uint8_t b[300], *p = text(b, stream);
	uint32_t words[] = {1, 0, 0, 0, 0, 4}; /* every frame, whole, four credits */
	for (int i = 0; i < 6; i++)
		p = put(p, words[i], 4);
	send_message(SUBSCRIBE, b, p - b);
}

static ucs_status_t on_message(void *arg, const void *header, size_t header_length, void *data, size_t length,
			       const ucp_am_recv_param_t *how)
{
	const uint8_t *p = data;
	switch ((uintptr_t)arg) {
	case WELCOME:
		printf("welcome: version %u, UCX %.*s\n", (unsigned)get(p, 2), p[2], p + 3);
		subscribe();
		break;
	case BYE:
		printf("bye %u: %.*s\n", (unsigned)get(p, 2), (int)get(p + 2, 2), p + 4);
		ended = 1;
		break;
	case ACCEPT:
		accepted = 1;
		printf("accept: %.4s %ux%u stride %u\n", p, (unsigned)get(p + 4, 4), (unsigned)get(p + 8, 4), (unsigned)get(p + 12, 4));
	}
	return UCS_OK;
}

static void on_error(void *arg, ucp_ep_h e, ucs_status_t status)
{
	printf("connection: %s\n", ucs_status_string(status));
	ended = 1;
}

static int check(const char *what, ucs_status_t status)
{
	if (status == UCS_OK)
		return 0;
	printf("%s: %s\n", what, ucs_status_string(status));
	return 1;
}

static int set_up(void)
{
	ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP};
	ucp_worker_params_t wp = {0};
	ucp_context_h context;
	if (check("ucp_init", ucp_init(&params, NULL, &context)) || check("ucp_worker_create", ucp_worker_create(context, &wp, &worker)))
		return 1;
	for (uintptr_t id = HELLO; id <= STATE; id++) {
		ucp_am_handler_param_t h = {
			.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG |
				      UCP_AM_HANDLER_PARAM_FIELD_FLAGS,
			.id = id,
			.flags = id == FRAME ? 0 : UCP_AM_FLAG_WHOLE_MSG,
			.cb = id == FRAME ? on_frame : on_message,
			.arg = (void *)id,
		};
		if (check("handler", ucp_worker_set_am_recv_handler(worker, &h)))
			return 1;
	}
	return 0;
}

static int dial(const char *address, const char *port)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
	if (inet_pton(AF_INET, address, &to.sin_addr) != 1)
		return 1;
	ucp_ep_params_t params = {
		.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
			      UCP_EP_PARAM_FIELD_ERR_HANDLER,
		.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
		.sockaddr = {(struct sockaddr *)&to, sizeof to},
		.err_mode = UCP_ERR_HANDLING_MODE_PEER,
		.err_handler.cb = on_error,
	};
	if (check("ucp_ep_create", ucp_ep_create(worker, &params, &ep)))
		return 1;
	uint8_t hello[300] = "TCUX", *p = put(put(hello + 4, 1, 2), 1, 2);
	p = text(p, ucp_get_version_string());
	send_message(HELLO, hello, p - hello);
	return 0;
}

static void progress(int fd)
{
	static time_t alive;
	while (!ended && received < wanted) {
		while (ucp_worker_progress(worker))
			;
		if (accepted && time(NULL) != alive) {
			alive = time(NULL);
			send_credits(0);
		}
		struct pollfd p = {.fd = fd, .events = POLLIN};
		if (ucp_worker_arm(worker) == UCS_OK)
			poll(&p, 1, 500);
	}
}

static void hang_up(void)
{
	uint8_t bye[4] = {1};
	ucp_request_param_t none = {0};
	if (!ended)
		send_message(BYE, bye, 4);
	ucs_status_ptr_t r = ucp_ep_close_nbx(ep, &none); /* after the bye has been sent */
	for (int i = 0; UCS_PTR_IS_PTR(r) && ucp_request_check_status(r) == UCS_INPROGRESS && i < 5000000; i++)
		ucp_worker_progress(worker);
}

int main(int argc, char **argv)
{
	int fd;
	setvbuf(stdout, NULL, _IOLBF, 0);
	setenv("UCX_CM_USE_ALL_DEVICES", "n", 0); /* as the sender has it */
	if (argc != 5)
		return 2;
	stream = argv[3];
	wanted = atoi(argv[4]);
	if (set_up() || check("efd", ucp_worker_get_efd(worker, &fd)) || dial(argv[1], argv[2]))
		return 2;
	progress(fd);
	hang_up();
	printf("received %u, wrong %u\n", received, wrong);
	return received < wanted || wrong;
}
