#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Watches a stream by WHEP with GStreamer's webrtcbin, writes so many decoded pictures (I420) to a file, and ends the session.

whep.py URL FILE PICTURES
"""
import sys
import urllib.parse
import urllib.request

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstSdp", "1.0")
gi.require_version("GstWebRTC", "1.0")
from gi.repository import GLib, Gst, GstSdp, GstWebRTC

url, path, pictures = sys.argv[1], sys.argv[2], int(sys.argv[3])
Gst.init(None)
loop = GLib.MainLoop()
failed = []


def fail(why):
    failed.append(why)
    loop.quit()


def ask(method, address, body=None):
    request = urllib.request.Request(address, body, {"Content-Type": "application/sdp"}, method=method)
    return urllib.request.urlopen(request, timeout=10)


pipeline = Gst.Pipeline()
webrtc = Gst.ElementFactory.make("webrtcbin")
webrtc.set_property("bundle-policy", GstWebRTC.WebRTCBundlePolicy.MAX_BUNDLE)
pipeline.add(webrtc)
h264 = "application/x-rtp,media=video,encoding-name=H264,clock-rate=90000,payload=102,packetization-mode=(string)1"
webrtc.emit("add-transceiver", GstWebRTC.WebRTCRTPTransceiverDirection.RECVONLY, Gst.Caps.from_string(h264))


def offered(promise, _):
    reply = promise.get_reply()  # the offer is in its memory
    webrtc.emit("set-local-description", reply.get_value("offer"), Gst.Promise.new())


def gathering(*_):
    if webrtc.get_property("ice-gathering-state") == GstWebRTC.WebRTCICEGatheringState.COMPLETE:
        GLib.idle_add(begin)


def begin():
    global session
    offer = webrtc.get_property("local-description").sdp.as_text()
    try:
        answer = ask("POST", url, offer.encode())
        session = urllib.parse.urljoin(url, answer.headers["Location"])
        _, sdp = GstSdp.SDPMessage.new_from_text(answer.read().decode())
    except Exception as e:  # whatever it is, the test is to see it
        fail(f"{e}: {offer}")
        return
    description = GstWebRTC.WebRTCSessionDescription.new(GstWebRTC.WebRTCSDPType.ANSWER, sdp)
    webrtc.emit("set-remote-description", description, Gst.Promise.new())


def comes(_, pad):
    if pad.direction != Gst.PadDirection.SRC:
        return
    rest = Gst.parse_bin_from_description(
        f"rtph264depay ! h264parse ! openh264dec ! identity eos-after={pictures + 1} ! filesink name=file location={path}", True)
    rest.get_by_name("file").get_static_pad("sink").add_probe(Gst.PadProbeType.EVENT_DOWNSTREAM, ends)
    pipeline.add(rest)
    rest.sync_state_with_parent()
    pad.link(rest.get_static_pad("sink"))


def ends(_, info):  # the pipeline has sinks that never end
    if info.get_event().type == Gst.EventType.EOS:
        GLib.idle_add(loop.quit)
    return Gst.PadProbeReturn.OK


def tells(_, message):
    if message.type == Gst.MessageType.ERROR:
        fail(message.parse_error())


webrtc.connect("on-negotiation-needed", lambda e: e.emit("create-offer", None, Gst.Promise.new_with_change_func(offered, None)))
webrtc.connect("notify::ice-gathering-state", gathering)
webrtc.connect("pad-added", comes)
bus = pipeline.get_bus()
bus.add_signal_watch()
bus.connect("message", tells)
pipeline.set_state(Gst.State.PLAYING)
loop.run()
pipeline.set_state(Gst.State.NULL)
if failed:
    sys.exit(f"{failed}")
ask("DELETE", session).close()
