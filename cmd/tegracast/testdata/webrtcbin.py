#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Encodes pictures (I420) that come through file descriptor 3, and sends them to one viewer with GStreamer's webrtcbin.

webrtcbin.py WIDTH HEIGHT RATE BITS

The offer goes to standard output, and the answer comes from standard input, each until the end of the file.
"""
import os
import sys
import threading

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstSdp", "1.0")
gi.require_version("GstWebRTC", "1.0")
from gi.repository import GLib, Gst, GstSdp, GstWebRTC

width, height, rate, bits = map(int, sys.argv[1:])
Gst.init(None)
loop = GLib.MainLoop()
failed = []
# The queue lets a thread of its own empty the pipe. The encoder is asked for what tegracast asks of it.
pipeline = Gst.parse_launch(
    f"fdsrc fd=3 blocksize=65536 ! queue max-size-buffers=0 max-size-bytes=0 max-size-time=0"
    f" ! rawvideoparse format=i420 width={width} height={height} framerate={rate}/1"
    f" ! queue leaky=downstream max-size-buffers=1 max-size-bytes=0 max-size-time=0"
    f" ! openh264enc rate-control=bitrate bitrate={bits} complexity=low gop-size=0 multi-thread=1"
    f" scene-change-detection=false background-detection=false"
    f" ! video/x-h264,profile=constrained-baseline ! rtph264pay config-interval=-1 aggregate-mode=zero-latency mtu=1200"
    f" ! application/x-rtp,media=video,encoding-name=H264,payload=102,packetization-mode=(string)1 ! webrtcbin name=peer bundle-policy=max-bundle")
peer = pipeline.get_by_name("peer")
agent = peer.get_property("ice-agent")  # Python has the only reference to it then
agent.emit("add-local-ip-address", "127.0.0.1")  # which libnice leaves out by itself


def added(_, bin, element):  # what sends waits for nothing, as the time stamps are not those of a clock
    if element.find_property("sync"):
        element.set_property("sync", False)


def offered(promise, _):
    reply = promise.get_reply()  # the offer is in its memory
    peer.emit("set-local-description", reply.get_value("offer"), Gst.Promise.new())


def gathering(*_):
    if peer.get_property("ice-gathering-state") == GstWebRTC.WebRTCICEGatheringState.COMPLETE:
        threading.Thread(target=ask, daemon=True).start()


def ask():
    sys.stdout.write(peer.get_property("local-description").sdp.as_text())
    sys.stdout.flush()
    os.close(1)
    _, sdp = GstSdp.SDPMessage.new_from_text(sys.stdin.read())
    answer = GstWebRTC.WebRTCSessionDescription.new(GstWebRTC.WebRTCSDPType.ANSWER, sdp)
    peer.emit("set-remote-description", answer, Gst.Promise.new())


def tells(_, message):
    if message.type == Gst.MessageType.ERROR:
        failed.append(message.parse_error())
        loop.quit()
    if message.type == Gst.MessageType.EOS:
        loop.quit()


pipeline.connect("deep-element-added", added)
peer.connect("on-negotiation-needed", lambda e: e.emit("create-offer", None, Gst.Promise.new_with_change_func(offered, None)))
peer.connect("notify::ice-gathering-state", gathering)
bus = pipeline.get_bus()
bus.add_signal_watch()
bus.connect("message", tells)
pipeline.set_state(Gst.State.PLAYING)
loop.run()
pipeline.set_state(Gst.State.NULL)
if failed:
    sys.exit(f"{failed}")
