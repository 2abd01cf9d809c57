/* SPDX-License-Identifier: Apache-2.0 */
/* What ucp.h says of the structures that the package passes. */
#include <stddef.h>
#include <stdio.h>
#include <ucp/api/ucp.h>

#define FIELD(type, field) printf(#type "." #field " %zu\n", offsetof(type, field))
#define VALUE(name) printf(#name " %ld\n", (long)(name))

int main(void)
{
	FIELD(ucp_params_t, features);
	FIELD(ucp_params_t, mt_workers_shared);
	FIELD(ucp_worker_params_t, thread_mode);
	FIELD(ucp_worker_params_t, events);
	FIELD(ucp_worker_attr_t, thread_mode);
	FIELD(ucp_worker_attr_t, address);
	FIELD(ucp_worker_attr_t, address_length);
	FIELD(ucp_worker_attr_t, max_am_header);
	FIELD(ucp_listener_params_t, sockaddr);
	FIELD(ucp_listener_params_t, conn_handler);
	FIELD(ucp_listener_attr_t, sockaddr);
	FIELD(ucp_conn_request_attr_t, client_address);
	FIELD(ucp_ep_params_t, address);
	FIELD(ucp_ep_params_t, err_mode);
	FIELD(ucp_ep_params_t, err_handler);
	FIELD(ucp_ep_params_t, flags);
	FIELD(ucp_ep_params_t, sockaddr);
	FIELD(ucp_ep_params_t, conn_request);
	FIELD(ucp_request_param_t, flags);
	FIELD(ucp_request_param_t, cb);
	FIELD(ucp_request_param_t, datatype);
	FIELD(ucp_request_param_t, user_data);
	FIELD(ucp_request_param_t, memory_type);
	FIELD(ucp_request_param_t, memh);
	FIELD(ucp_am_handler_param_t, id);
	FIELD(ucp_am_handler_param_t, flags);
	FIELD(ucp_am_handler_param_t, cb);
	FIELD(ucp_am_handler_param_t, arg);
	FIELD(ucp_am_recv_param_t, reply_ep);
	FIELD(ucp_mem_map_params_t, address);
	FIELD(ucp_mem_map_params_t, length);
	FIELD(ucp_mem_map_params_t, memory_type);
	FIELD(ucp_dt_iov_t, length);
	VALUE(sizeof(ucs_status_t));
	VALUE(ucp_dt_make_contig(1));
	VALUE(UCP_DATATYPE_IOV);
	VALUE(UCP_FEATURE_AM | UCP_FEATURE_WAKEUP);
	VALUE(UCS_THREAD_MODE_SERIALIZED);
	VALUE(UCP_ERR_HANDLING_MODE_PEER);
	VALUE(UCP_OP_ATTR_FIELD_MEMH | UCP_OP_ATTR_FIELD_MEMORY_TYPE);
	VALUE(UCP_AM_SEND_FLAG_RNDV);
	VALUE(UCP_AM_FLAG_PERSISTENT_DATA);
	VALUE(UCP_AM_RECV_ATTR_FLAG_RNDV);
	VALUE(UCS_MEMORY_TYPE_CUDA_MANAGED);
	return 0;
}
