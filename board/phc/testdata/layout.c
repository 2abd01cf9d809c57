/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>
#include <stdio.h>
#include <linux/ptp_clock.h>

#define SIZE(s) printf("%s %zu\n", #s, sizeof(struct s))
#define AT(s, f) printf("%s.%s %zu\n", #s, #f, offsetof(struct s, f))
#define CALL(n) printf("%s %lu\n", #n, (unsigned long)(n))

int main(void)
{
	SIZE(ptp_clock_caps);
	AT(ptp_clock_caps, max_adj);
	SIZE(ptp_clock_time);
	AT(ptp_clock_time, nsec);
	SIZE(ptp_sys_offset);
	AT(ptp_sys_offset, ts);
	SIZE(ptp_sys_offset_extended);
	AT(ptp_sys_offset_extended, ts);
	SIZE(ptp_sys_offset_precise);
	AT(ptp_sys_offset_precise, sys_realtime);
	AT(ptp_sys_offset_precise, sys_monoraw);
	CALL(PTP_MAX_SAMPLES);
	CALL(PTP_CLOCK_GETCAPS);
	CALL(PTP_SYS_OFFSET);
	CALL(PTP_SYS_OFFSET_PRECISE);
	CALL(PTP_SYS_OFFSET_EXTENDED);
	return 0;
}
