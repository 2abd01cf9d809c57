// SPDX-License-Identifier: Apache-2.0
/* Streams and events of the stand-in: a stream is a thread, which dawdles now and then. */
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <set>
#include <thread>

/* An event counts how often it was put into a stream, and how often a stream has come there. */
struct event {
	std::mutex m;
	std::condition_variable c;
	unsigned long put = 0, reached = 0;
	std::chrono::steady_clock::time_point at;

	void come(unsigned long n)
	{
		std::lock_guard<std::mutex> hold(m);
		reached = n;
		at = std::chrono::steady_clock::now();
		c.notify_all();
	}
	void wait(unsigned long n)
	{
		std::unique_lock<std::mutex> hold(m);
		c.wait(hold, [&] { return reached >= n; });
	}
	unsigned long now()
	{
		std::lock_guard<std::mutex> hold(m);
		return put;
	}
};

struct stream {
	std::mutex m;
	std::condition_variable c;
	std::deque<std::function<void()>> work;
	bool busy = false, ending = false;
	std::thread thread{[this] { run(); }};

	void run()
	{
		unsigned seed = (uintptr_t)this >> 4;
		std::unique_lock<std::mutex> hold(m);
		for (;;) {
			c.wait(hold, [&] { return ending || !work.empty(); });
			if (work.empty())
				return;
			auto next = std::move(work.front());
			work.pop_front();
			busy = true;
			hold.unlock();
			usleep(rand_r(&seed) % 4 ? 0 : rand_r(&seed) % 500);
			next();
			hold.lock();
			busy = false;
			c.notify_all();
		}
	}
	int put(std::function<void()> f)
	{
		if (getenv("STANDIN_AT_ONCE")) /* for those who have a time limit: a CPU is slow */
			return f(), 0;
		std::lock_guard<std::mutex> hold(m);
		work.push_back(std::move(f));
		c.notify_all();
		return 0;
	}
	void drain()
	{
		std::unique_lock<std::mutex> hold(m);
		c.wait(hold, [&] { return work.empty() && !busy; });
	}
};
static std::set<stream *> streams;

API cuStreamCreate(stream **s, unsigned)
{
	std::lock_guard<std::mutex> hold(lock);
	return streams.insert(*s = new stream), 0;
}
API cuStreamSynchronize(stream *s) /* that of the default one: its work is done when it is enqueued */
{
	if (s)
		s->drain();
	return 0;
}
API cuStreamDestroy_v2(stream *s)
{
	{
		std::lock_guard<std::mutex> hold(lock);
		streams.erase(s);
	}
	{
		std::lock_guard<std::mutex> hold(s->m);
		s->ending = true;
		s->c.notify_all();
	}
	s->thread.join();
	return delete s, 0;
}
API cuCtxSynchronize()
{
	std::lock_guard<std::mutex> hold(lock);
	for (stream *s : streams)
		s->drain();
	return 0;
}
OK(cuStreamGetCtx)
API cuEventCreate(event **e, unsigned) { return *e = new event, 0; }
API cuEventDestroy_v2(event *e) { return delete e, 0; }
API cuEventRecord(event *e, stream *s)
{
	unsigned long n;
	{
		std::lock_guard<std::mutex> hold(e->m);
		n = ++e->put;
	}
	return s->put([=] { e->come(n); });
}
API cuStreamWaitEvent(stream *s, event *e, unsigned)
{
	const unsigned long n = e->now();
	return s->put([=] { e->wait(n); });
}
API cuEventSynchronize(event *e) { return e->wait(e->now()), 0; }
API cuEventElapsedTime(float *ms, event *from, event *to)
{
	*ms = std::chrono::duration<float, std::milli>(to->at - from->at).count();
	return 0;
}

static int copy_later(void *to, const void *from, size_t n, stream *s)
{
	return s->put([=] { memcpy(to, from, n); });
}
API cuMemcpyHtoDAsync_v2(void *to, const void *from, size_t n, stream *s) { return copy_later(to, from, n, s); }
API cuMemcpyDtoDAsync_v2(void *to, const void *from, size_t n, stream *s) { return copy_later(to, from, n, s); }
API cuMemcpyDtoHAsync_v2(void *to, const void *from, size_t n, stream *s) { return copy_later(to, from, n, s); }
API cuMemsetD8Async(void *at, int v, size_t n, stream *s) { return s->put([=] { memset(at, v, n); }); }
