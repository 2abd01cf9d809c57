// SPDX-License-Identifier: Apache-2.0
// The C interface of the simulated camera: a clock, the host's end of AXI4-Lite and AXI4-Stream, and a sensor. It checks the
// handshake rules of both, and the level of every wire that may not change.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "Vtcam_sim.h"
#include "verilated.h"
#if VM_COVERAGE
#include "verilated_cov.h"
#endif
#if VM_TRACE
#include "verilated_vcd_c.h"
#endif

namespace {

// Random numbers by xorshift: the same seed is the same run.
struct Random {
    uint64_t s = 0x9e3779b97f4a7c15u;
    uint32_t next() {
        s ^= s << 13;
        s ^= s >> 7;
        s ^= s << 17;
        return uint32_t(s >> 16);
    }
    bool chance(uint32_t of256) { return (next() & 255) < of256; }
};

struct Shot {
    std::vector<uint16_t> samples;
    std::vector<uint32_t> lines;  // samples each
};

// Registers without reset begin with random values.
struct Context : VerilatedContext {
    explicit Context(uint64_t seed) {
        randSeed(int(1 + seed % 1000000));
        randReset(2);
    }
};

struct Camera;
thread_local Camera *current;  // is being evaluated
uint32_t mutant = 0;

struct Camera {
    Context context;
    Vtcam_sim top{&context};
#if VM_TRACE
    VerilatedVcdC trace;
    bool traced = false;
#endif
    Random random;
    uint32_t ready = 256, burst = 1, slow = 0;  // TREADY: its chance of 256, for how many cycles, and of the other channels
    uint32_t stay = 0;
    std::vector<uint8_t> packet;
    std::deque<std::vector<uint8_t>> packets;
    std::string broken;
    uint32_t count = 0;

    // Where a DMA engine takes the stream, beats are accepted while it has room for them, and wait for it in taken.
    bool metered = false, ended = false;  // ended: taken ends with TLAST
    uint32_t room = 0;
    std::vector<uint8_t> taken;
    size_t gone = 0;  // bytes of taken that the engine has

    explicit Camera(uint64_t seed) : context(seed) {
        for (random.s ^= seed * 0xd1342543de82ef95u; random.s == 0;) random.s = 1;
    }

    // The last cycle's stream, to which the rule of AXI4-Stream applies.
    bool waits = false, last = false;
    uint32_t data[4];

    // The sensor.
    std::deque<Shot> shots;
    Shot shot;
    bool exposed = false, reading = false, halted = false;
    size_t at = 0, line = 0, left = 0;
    uint32_t gap = 0, sensor_clock = 0;
    uint64_t first_line = 0, last_line = 0;

    // Verilator's runtime must know whose turn it is on this thread: for the checks (vl_stop), and for what goes with a camera.
    void enter() {
        current = this;
        Verilated::threadContextp(&context);
    }

    void eval() {
        enter();
        top.eval();
    }

    void fail(const char *what) {
        if (broken.size() < 2000) broken += std::string(what) + " at " + std::to_string(top.now) + " ns\n";
    }

    void stream() {
        bool detached = !top.c2h_run && !top.c2h_busy;
        if (waits && !(detached && !top.tvalid)) {
            if (!top.tvalid) fail("TVALID fell before TREADY");
            else if (memcmp(data, &top.tdata[0], 16) != 0 || last != bool(top.tlast)) fail("a beat that waits changed");
        }
        if (top.tvalid && top.tkeep != 0xffff) fail("TKEEP is not all ones");
        if (detached) {
            packet.clear();
            forget();
        }
        if (top.tvalid && top.tready && metered) {
            const uint8_t *p = reinterpret_cast<const uint8_t *>(&top.tdata[0]);
            taken.insert(taken.end(), p, p + 16);
            ended = top.tlast;
            room = ended ? 0 : room - 1;
        } else if (top.tvalid && top.tready) {
            const uint8_t *p = reinterpret_cast<const uint8_t *>(&top.tdata[0]);
            packet.insert(packet.end(), p, p + 16);
            if (top.tlast) {
                packets.push_back(packet);
                packet.clear();
            }
        }
        waits = top.tvalid && !top.tready && !detached;
        memcpy(data, &top.tdata[0], 16);
        last = top.tlast;
    }

    // What the engine has not taken is lost.
    void forget() {
        taken.clear();
        gone = 0;
        room = 0;
        ended = false;
    }

    // The sensor reads out a shot each time that the exposure ends. Lines begin with gaps of random length.
    void sensor() {
        bool now_exposed = top.expose;
        if (exposed && !now_exposed && !reading && !shots.empty()) {
            shot = shots.front();
            shots.pop_front();
            reading = true;
            at = line = 0;
            gap = 2 + random.next() % 4;
            left = shot.lines.empty() ? 0 : shot.lines[0];
            first_line = last_line = 0;
        }
        exposed = now_exposed;
        if (halted) return;
        top.frame_valid = reading;
        top.line_valid = 0;
        top.pixel = uint16_t(random.next());
        if (!reading) return;
        if (gap > 0) {
            gap--;
        } else if (line < shot.lines.size() && left > 0) {
            top.line_valid = 1;
            top.pixel = shot.samples[at++];
            if (--left == 0) {
                last_line = top.now;
                if (line == 0) first_line = top.now;
                line++;
                left = line < shot.lines.size() ? shot.lines[line] : 0;
                gap = 1 + random.next() % 5;
            }
        } else {
            reading = false;
            top.frame_valid = 0;
        }
    }

    void dump() {
#if VM_TRACE
        if (traced) trace.dump(context.time());
#endif
    }

    // A cycle: inputs change after the falling edge, outputs are looked at before the rising one. The sensor's clock has 3/5 of
    // the rate.
    void cycle() {
        if (stay == 0) {
            top.tready = random.chance(ready);
            stay = 1 + random.next() % burst;
        }
        stay--;
        if (!top.c2h_run && !top.c2h_busy) top.tready = 0;
        bool level = top.tready;
        if (metered && room == 0) top.tready = 0;
        bool quick = metered && top.use_pattern;  // no sensor; outputs of the stream are registers and need not be asked for
        if (!quick) eval();
        if (top.resetn) stream();
        top.clk = 1;
        context.timeInc(1);
        eval();
        dump();
        sensor_clock += quick ? 0 : 3;
        if (sensor_clock >= 5) {
            sensor_clock -= 5;
            top.pixel_clk = 1;
            context.timeInc(1);
            eval();
            dump();
            top.pixel_clk = 0;
            sensor();
        }
        top.clk = 0;
        top.tready = level;
        context.timeInc(1);
        eval();
        dump();
        count++;
    }

    void wait() {
        while (random.chance(slow)) cycle();
    }

    template <typename F>
    bool until(F done, const char *what) {
        for (int i = 0; i < 100; i++) {
            eval();
            if (done()) return true;
            cycle();
        }
        fail(what);
        return false;
    }

    void write(uint32_t address, uint32_t value) {
        top.awaddr = uint16_t(address);
        top.wdata = value;
        bool data_first = random.chance(slow);
        (data_first ? top.wvalid : top.awvalid) = 1;
        wait();
        top.awvalid = top.wvalid = 1;
        until([&] { return top.awready && top.wready; }, "a write is not taken");
        cycle();
        top.awvalid = top.wvalid = 0;
        wait();
        until([&] { return top.bvalid; }, "a write is not answered");
        if (top.bresp != 0) fail("BRESP is not OKAY");
        top.bready = 1;
        cycle();
        top.bready = 0;
    }

    uint32_t read(uint32_t address) {
        top.araddr = uint16_t(address);
        top.arvalid = 1;
        until([&] { return top.arready; }, "a read is not taken");
        cycle();
        top.arvalid = 0;
        until([&] { return top.rvalid; }, "a read is not answered");
        uint32_t value = top.rdata;
        wait();
        eval();
        if (!top.rvalid || top.rdata != value || top.rresp != 0) fail("a read's answer did not wait for RREADY");
        top.rready = 1;
        cycle();
        top.rready = 0;
        return value;
    }

    void reset() {
        forget();
        waits = false;
        top.resetn = 0;
        for (int i = 0; i < 8; i++) cycle();
        top.resetn = 1;
    }
};

}  // namespace

// A check of fpga/rtl/check has failed: Verilator's own vl_stop would end the process. The first one is enough.
void vl_stop(const char *file, int line, const char *) {
    current->fail((std::string(file) + ":" + std::to_string(line)).c_str());
    current->context.assertOn(false);
}

extern "C" {

// tcam_mutant chooses the fault that designs have from now on, if they were built for that; 0 is none.
void tcam_mutant(uint32_t number) { mutant = number; }

void *tcam_new(uint64_t seed, uint32_t pattern, const char *trace) {
    Camera *c = new Camera(seed);
    c->top.clk = c->top.pixel_clk = 0;
    c->top.awvalid = c->top.wvalid = c->top.bready = c->top.arvalid = c->top.rready = 0;
    c->top.c2h_run = c->top.c2h_busy = c->top.trigger_in = 0;
    c->top.frame_valid = c->top.line_valid = 0;
    c->top.use_pattern = pattern;
#ifdef TCAM_MUTANTS
    c->top.mutant = mutant;
#endif
#if VM_TRACE
    if (trace[0] != 0) {
        c->context.traceEverOn(true);
        c->top.trace(&c->trace, 99);
        c->trace.open(trace);
        c->traced = true;
    }
#else
    (void)trace;
#endif
    c->reset();
    return c;
}

void tcam_free(void *p) {
    Camera *c = static_cast<Camera *>(p);
    c->enter();
#if VM_TRACE
    if (c->traced) c->trace.close();
#endif
    c->top.final();
    delete c;
}

void tcam_write(void *p, uint32_t address, uint32_t value) { static_cast<Camera *>(p)->write(address, value); }
uint32_t tcam_read(void *p, uint32_t address) { return static_cast<Camera *>(p)->read(address); }

void tcam_run(void *p, uint32_t cycles) {
    while (cycles-- > 0) static_cast<Camera *>(p)->cycle();
}

void tcam_channel(void *p, uint32_t run, uint32_t busy) {
    Camera *c = static_cast<Camera *>(p);
    c->top.c2h_run = run;
    c->top.c2h_busy = busy;
}

// tcam_room says that the engine has room for so many beats from now on, and for none before it was called.
void tcam_room(void *p, uint32_t beats) {
    Camera *c = static_cast<Camera *>(p);
    c->metered = true;
    c->room = c->ended ? 0 : beats;
}

// tcam_waiting returns how many bytes the engine can take.
uint32_t tcam_waiting(void *p) {
    Camera *c = static_cast<Camera *>(p);
    return uint32_t(c->taken.size() - c->gone);
}

// tcam_take takes bytes, and returns how many; bit 31 says that they end a packet.
uint32_t tcam_take(void *p, uint8_t *to, uint32_t room) {
    Camera *c = static_cast<Camera *>(p);
    uint32_t n = std::min(room, tcam_waiting(p));
    memcpy(to, c->taken.data() + c->gone, n);
    c->gone += n;
    if (c->gone < c->taken.size()) return n;
    uint32_t end = c->ended ? 0x80000000u : 0;
    c->taken.clear();
    c->gone = 0;
    c->ended = false;
    return n | end;
}

// tcam_reset is the card's reset.
void tcam_reset(void *p) {
    Camera *c = static_cast<Camera *>(p);
    c->top.c2h_run = c->top.c2h_busy = 0;
    c->reset();
}

void tcam_pressure(void *p, uint32_t ready, uint32_t burst, uint32_t slow) {
    Camera *c = static_cast<Camera *>(p);
    c->ready = ready;
    c->burst = burst;
    c->slow = slow;
}

void tcam_trigger(void *p, uint32_t level) { static_cast<Camera *>(p)->top.trigger_in = level; }
uint32_t tcam_interrupt(void *p) { return static_cast<Camera *>(p)->top.user_interrupt; }
uint64_t tcam_now(void *p) { return static_cast<Camera *>(p)->top.now; }
uint32_t tcam_cycles(void *p) { return static_cast<Camera *>(p)->count; }

// tcam_shot has the sensor read out these lines when the next exposure ends that has none yet.
void tcam_shot(void *p, const uint16_t *samples, const uint32_t *lines, uint32_t count) {
    Shot s;
    size_t n = 0;
    for (uint32_t i = 0; i < count; i++) n += lines[i];
    s.samples.assign(samples, samples + n);
    s.lines.assign(lines, lines + count);
    static_cast<Camera *>(p)->shots.push_back(s);
}

void tcam_halt(void *p, uint32_t halted) { static_cast<Camera *>(p)->halted = halted; }

uint32_t tcam_sensor_busy(void *p) { return static_cast<Camera *>(p)->reading; }
uint64_t tcam_first_line(void *p) { return static_cast<Camera *>(p)->first_line; }
uint64_t tcam_last_line(void *p) { return static_cast<Camera *>(p)->last_line; }

// tcam_packet takes the oldest packet and returns its length, or 0.
uint32_t tcam_packet(void *p, uint8_t *to, uint32_t room) {
    Camera *c = static_cast<Camera *>(p);
    if (c->packets.empty()) return 0;
    std::vector<uint8_t> &b = c->packets.front();
    uint32_t n = uint32_t(b.size());
    memcpy(to, b.data(), n < room ? n : room);
    c->packets.pop_front();
    return n;
}

// tcam_coverage writes what this simulation has covered of the design, if it was built for that.
void tcam_coverage(void *p, const char *file) {
#if VM_COVERAGE
    static_cast<Camera *>(p)->context.coveragep()->write(file);
#else
    (void)p;
    (void)file;
#endif
}

// tcam_broken returns the length of what rules were broken, a line each.
uint32_t tcam_broken(void *p, uint8_t *to, uint32_t room) {
    Camera *c = static_cast<Camera *>(p);
    uint32_t n = uint32_t(c->broken.size());
    memcpy(to, c->broken.data(), n < room ? n : room);
    return n;
}

}  // extern "C"
