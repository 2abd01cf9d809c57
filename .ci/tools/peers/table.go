// SPDX-License-Identifier: Apache-2.0

package main

// A row says that a test checks something with a peer, which is another program or library. Test is the name of a test
// function, or NAME/PATTERN for the subtests that a regular expression matches.
type row struct {
	peer, what, folder, test string
}

// deb, module and node return the command that prints the version of a Debian package, of a module of go.mod in a folder,
// and of a node package that is installed in a folder.
func deb(name string) string { return "dpkg-query -W -f '${Version}' " + name }

func module(folder, path string) string {
	return "go -C " + folder + " list -m -f '{{.Version}}' " + path
}

func node(folder, name string) string {
	return `node -p 'require("./` + folder + `/package-lock.json").packages["node_modules/` + name + `"].version'`
}

// versions maps each peer to the shell command, run in the root of the tree, that prints its version.
var versions = map[string]string{
	"@mcap/core":                node("pipeline/record/testdata/core", "@mcap/core"),
	"ajv":                       node("cmd/tegracast/testdata/schema", "ajv"),
	"axe-core":                  node("cmd/tegracast/testdata/axe", "axe-core"),
	"bash":                      deb("bash"),
	"Caddy":                     deb("caddy"),
	"Chromium":                  deb("chromium"),
	"dcraw":                     deb("dcraw"),
	"FFmpeg":                    deb("ffmpeg"),
	"Firefox":                   deb("firefox-esr"),
	"fish":                      deb("fish"),
	"Foxglove MCAP for Go":      module(".", "github.com/foxglove/mcap/go/mcap"),
	"gortsplib":                 module(".", "github.com/bluenviron/gortsplib/v5"),
	"groff":                     deb("groff-base"),
	"GStreamer":                 deb("gstreamer1.0-plugins-bad"),
	"HAProxy":                   deb("haproxy"),
	"libjpeg-turbo":             deb("libturbojpeg0"),
	"LibRaw":                    deb("libraw-bin"),
	"LiveKit":                   module("pipeline/rtp/webrtc/livekittest", "github.com/livekit/livekit-server"),
	"mandoc":                    deb("mandoc"),
	"mp4box":                    node("pipeline/record/mp4/testdata/mp4box", "mp4box"),
	"MediaMTX":                  `sed -n 's/.*mediamtx@\(v[0-9.]*\)".*/\1/p' pipeline/rtp/rtptest/mediamtx.go`,
	"mosquitto":                 deb("mosquitto"),
	"mosquitto_sub":             deb("mosquitto-clients"),
	"NATS Server, Debian's":     deb("nats-server"),
	"NATS Server, Go's module":  module(".", "github.com/nats-io/nats-server/v2"),
	"nats.go":                   module(".", "github.com/nats-io/nats.go"),
	"nginx":                     deb("nginx-light"),
	"NumPy":                     deb("python3-numpy"),
	"ONNX":                      "echo 1.17.0",
	"ONNX Runtime":              "echo 1.17.3, 1.21.0 and 1.30.0",
	"OpenCV":                    deb("python3-opencv"),
	"OpenH264":                  deb("libopenh264-7"),
	"OpenH264, other releases":  "echo 2.2.0 and 2.6.0",
	"Paho MQTT for Go":          module(".", "github.com/eclipse/paho.mqtt.golang"),
	"Prometheus":                deb("prometheus"),
	"Prometheus client_golang":  module(".", "github.com/prometheus/client_golang"),
	"Python":                    deb("python3"),
	"strict RTP receiver (own)": "echo this tree",
	"strict RTSP client (own)":  "echo this tree",
	"systemd":                   "echo those of Debian 12 and 13",
	"UCX":                       deb("libucx0"),
	"VLC":                       deb("vlc-bin"),
	"x264":                      deb("libx264-164"),
	"yaml-language-server":      node("cmd/tegracast/testdata/schema", "yaml-language-server"),
	"zsh":                       deb("zsh"),
}

const (
	program  = "cmd/tegracast"
	bus      = "pipeline/bus"
	codec    = "pipeline/codec"
	export   = "pipeline/record/export"
	infer    = "pipeline/infer"
	isp      = "pipeline/isp"
	mcap     = "pipeline/record/mcap"
	mp4      = "pipeline/record/mp4"
	ort      = "pipeline/infer/onnxruntime"
	record   = "pipeline/record"
	rtsp     = "pipeline/rtp/rtsp"
	send     = "pipeline/rtp/send"
	share    = "pipeline/share"
	ucx      = "pipeline/ucx"
	webrtc   = "pipeline/rtp/webrtc"
	reading  = "reads raw video, JPEG and H.264 by RTSP over UDP and TCP, every frame right"
	grouping = "reads raw video, JPEG and H.264 by RTSP and multicast"
	opens    = "decodes MP4 files of H.264 and JPEG while they grow, every frame right"
	cutting  = "decodes the whole fragments of MP4 files cut at random bytes"
	spanning = "decodes parts of MP4 files, from the first frame asked for to the last"
	proxying = "proxy in front of the page: access only with the password"
	cut      = "no message is lost or reordered when the link is cut"
	restart  = "no message is lost when it restarts"
)

// table has the rows in no particular order.
var table = []row{
	{"@mcap/core", "reads recordings by index and from the beginning, whole and cut", record, "TestOthersReadRecordings"},
	{"@mcap/core", "reads repaired recordings", record, "TestOthersReadARepairedRecording"},
	{"@mcap/core", "its files are played", record, "TestRecordingsOfOthersArePlayed"},
	{"ajv", "accepts the configuration's schema, tells good files from bad", program, "TestSchemaInEditors"},
	{"axe-core", "finds no fault of accessibility in the page", program, "TestPageInABrowser"},
	{"bash", "completes commands", program, "TestCompletion"},
	{"Caddy", proxying, program, "TestBehindProxies/caddy(_plain)?"},
	{"Chromium", "shows the page, its pictures and controls", program, "TestPageInABrowser"},
	{"Chromium", "plays H.264 by WebRTC, each frame with its number and results", program, "TestWatchInABrowser"},
	{"dcraw", "reads the samples of exported DNG", export, "TestDNGHasTheSamples"},
	{"dcraw", "develops exported DNG with black level and white balance as shot", export, "TestDNGHasTheShot"},
	{"FFmpeg", "receives raw video by RTP: 8 and 10 bits, R'G'B'", send, "TestPeersReceiveRaw/.*/ffmpeg"},
	{"FFmpeg", "receives JPEG by RTP", send, "TestPeersReceiveJPEG/ffmpeg"},
	{"FFmpeg", "receives the program's raw video and JPEG by SDP", program, "TestPeers"},
	{"FFmpeg", "receives H.264 by SDP", program, "TestPeersH264"},
	{"FFmpeg", "receives frames sent in slices", program, "TestPeersReceiveSlices"},
	{"FFmpeg", reading, rtsp, "TestPeersRead"},
	{"FFmpeg", grouping, rtsp, "TestPeersReadAGroup"},
	{"FFmpeg", "changes from UDP to TCP behind a firewall", rtsp, "TestChangeToTCP"},
	{"FFmpeg", "takes a published stream as an RTSP server", rtsp, "TestPublish"},
	{"FFmpeg", "decodes steps of grey as meant, from each source in each payload", program, "TestColours"},
	{"GStreamer", "decodes steps of grey as meant, from each source in each payload", program, "TestColours"},
	{"Chromium", "shows steps of grey as meant", program, "TestColours"},
	{"Chromium", "opens what the page plays of files cut at random bytes", mp4, "TestBrowsersOpenCutFiles"},
	{"FFmpeg", "its demosaicing gives the isp's pictures", isp, "TestBilinearAgainstFFmpeg"},
	{"FFmpeg", "its Y'CbCr is the isp's", isp, "TestConversionsAgainstFFmpeg"},
	{"FFmpeg", "reads exported Matroska bit by bit", export, "TestMKVHasThePictures"},
	{"FFmpeg", opens, mp4, "TestPlayersOpenFiles"},
	{"FFmpeg", cutting, mp4, "TestPlayersOpenCutFiles"},
	{"FFmpeg", spanning, mp4, "TestPlayersOpenSpans"},
	{"FFmpeg", "its fragmented MP4 files are read", mp4, "TestFFmpegsFilesAreRead"},
	{"FFmpeg", "its YUV4MPEG2 files are replayed", "capture", "TestReplayY4MFromFFmpeg"},
	{"Firefox", "plays MP4 files of H.264, also while they grow, and parts of them, and finds every picture", mp4, "TestFirefoxPlaysFiles"},
	{"Firefox", "opens what the page plays of files cut at random bytes", mp4, "TestBrowsersOpenCutFiles"},
	{"fish", "completes commands, with descriptions", program, "TestFishCompletes"},
	{"Foxglove MCAP for Go", "reads recordings by index and from the beginning, whole and cut", record, "TestOthersReadRecordings"},
	{"Foxglove MCAP for Go", "reads the writer's files in order, by the index, with all CRCs", mcap, "TestAnotherReaderReadsIt"},
	{"Foxglove MCAP for Go", "its writer's files are read, compressed ones too", mcap, "TestFilesOfOthersAreRead"},
	{"gortsplib", "its client plays raw video, JPEG and H.264 by UDP and TCP", rtsp, "TestGortsplibPlays"},
	{"gortsplib", "its server takes a published stream, with a password", rtsp, "TestPublishPassword"},
	{"groff", "typesets the manual pages without a warning", program, "TestManual"},
	{"GStreamer", "udpsrc, rtpvrawdepay: raw video, 8 and 10 bits, R'G'B'", send, "TestPeersReceiveRaw/.*/udpsrc"},
	{"GStreamer", "rtpbin, rtpvrawdepay: raw video, 8 and 10 bits, R'G'B'", send, "TestPeersReceiveRaw/.*/rtpbin"},
	{"GStreamer", "udpsrc, rtpjpegdepay: JPEG", send, "TestPeersReceiveJPEG/udpsrc"},
	{"GStreamer", "rtpbin, rtpjpegdepay: JPEG", send, "TestPeersReceiveJPEG/rtpbin"},
	{"GStreamer", "rtpvrawdepay, rtpjpegdepay: the program's streams by SDP", program, "TestPeers"},
	{"GStreamer", "rtph264depay: H.264 by SDP", program, "TestPeersH264"},
	{"GStreamer", "rtpvrawdepay: frames sent in slices", program, "TestPeersReceiveSlices"},
	{"GStreamer", "rtpvrawpay makes the same packets", "pipeline/rtp", "TestGStreamerSendsTheSamePackets"},
	{"GStreamer", "rtspsrc " + reading, rtsp, "TestPeersRead"},
	{"GStreamer", "rtspsrc " + grouping, rtsp, "TestPeersReadAGroup"},
	{"GStreamer", opens, mp4, "TestPlayersOpenFiles"},
	{"GStreamer", cutting, mp4, "TestPlayersOpenCutFiles"},
	{"GStreamer", spanning, mp4, "TestPlayersOpenSpans"},
	{"GStreamer", "webrtcbin watches H.264 by WHEP", webrtc, "TestGStreamer"},
	{"GStreamer", "rtph264pay sends H.264 to probe", program, "TestH264OfOthers"},
	{"HAProxy", proxying, program, "TestBehindProxies/haproxy(_plain)?"},
	{"libjpeg-turbo", "encodes JPEG; Go's image/jpeg decodes it", codec, "TestTurboJPEG"},
	{"LibRaw", "reads the samples of exported DNG", export, "TestDNGHasTheSamples"},
	{"LibRaw", "reads the exposure time of exported DNG", export, "TestDNGHasTheShot"},
	{"LiveKit", "takes H.264 by WHIP, also after a restart; its SDK receives it", webrtc, "TestLiveKit"},
	{"mandoc", "finds nothing wrong in the manual pages", program, "TestManual"},
	{"MediaMTX", "takes raw video, JPEG and H.264 by RECORD, also after a restart; FFmpeg reads them there", rtsp, "TestMediaMTX"},
	{"MediaMTX", "pulls raw video, JPEG and H.264 by RTSP; FFmpeg reads them there", rtsp, "TestMediaMTXPulls"},
	{"MediaMTX", "takes H.264 by WHIP, also after a restart; FFmpeg reads it there", webrtc, "TestMediaMTX"},
	{"mp4box", "finds samples, times and notes of MP4 files of H.264 and JPEG", mp4, "TestMP4BoxReadsFiles"},
	{"mp4box", "finds the whole fragments of MP4 files cut at random bytes", mp4, "TestPlayersOpenCutFiles"},
	{"mp4box", "finds samples and edit lists of parts of MP4 files", mp4, "TestPlayersOpenSpans"},
	{"mosquitto", cut, bus, "TestCutLink/mosquitto"},
	{"mosquitto", restart, bus, "TestServerRestarts/mosquitto"},
	{"mosquitto", "lists twenty boards", bus, "TestBoards/mosquitto"},
	{"mosquitto", "tells two boards of one name of each other", bus, "TestBoardsOfOneName/mosquitto"},
	{"mosquitto_sub", "receives results, events and health; health is retained", bus, "TestMosquittoSub"},
	{"NATS Server, Debian's", cut, bus, "TestCutLink/debian"},
	{"NATS Server, Debian's", restart, bus, "TestServerRestarts/debian"},
	{"NATS Server, Debian's", "lists twenty boards", bus, "TestBoards/debian"},
	{"NATS Server, Go's module", cut, bus, "TestCutLink/embedded"},
	{"NATS Server, Go's module", restart, bus, "TestServerRestarts/embedded"},
	{"NATS Server, Go's module", "TLS, user, token and credentials", bus, "TestWhoPublishes"},
	{"NATS Server, Go's module", "its MQTT listener: no message is lost when the link is cut", bus, "TestCutLink/listener"},
	{"nats.go", "reads the program's results, events and health from JetStream", program, "TestBus"},
	{"nginx", proxying, program, "TestBehindProxies/nginx(_plain)?"},
	{"NumPy", "its array is the shared frame", share, "TestDevicesOfOtherLanguages"},
	{"NumPy", "its float64 gives the same input tensors of models", infer + "/preprocess", "TestTensorAgainstOpenCV"},
	{"OpenCV", "cvtColor, resize and blobFromImage give the same input tensors of models", infer + "/preprocess", "TestTensorAgainstOpenCV"},
	{"OpenCV", "makes the same input of pictures for a text detector, and finds the same rectangles in its output", infer, "TestDetectorOnPictures"},
	{"OpenCV", "finds the rectangles of random heat maps", infer + "/postprocess", "TestHeatMapIsOpenCVs"},
	{"OpenCV", "keeps the same boxes of random ones", infer + "/postprocess", "TestNMSIsOpenCVs"},
	{"ONNX Runtime", "runs models of PaddleOCR, each release with the same numbers", ort, "TestReleases"},
	{"ONNX Runtime", "runs a model on an emulated arm64, with the same numbers", ort, "TestARM64"},
	{"ONNX Runtime", "finds the inputs and outputs that are read from the models' files", ort, "TestTheLibraryFindsTheSameModel"},
	{"ONNX", "the models of its tests are described alike by the library and from their files, and compute its numbers", ort, "TestONNXsOwnModels"},
	{"OpenCV", "computes what ONNX Runtime does, by its own operators", ort, "TestOpenCV"},
	{"OpenH264", "encodes H.264; FFmpeg decodes every picture, in order", codec, "TestH264"},
	{"OpenH264, other releases", "encodes H.264; FFmpeg decodes every picture, in order", codec, "TestH264Releases"},
	{"Paho MQTT for Go", "receives every result, in order", bus, "TestCutLink/mosquitto"},
	{"Prometheus", "promtool accepts the alert rules", program, "TestAlertRules"},
	{"Prometheus client_golang", "its linter accepts the metrics", program + "/web", "TestMetrics"},
	{"Python", "gets each shared frame, with bytes and results", share, "TestOtherLanguages"},
	{"strict RTP receiver (own)", "gets frames sent in slices without complaint", program, "TestPeersReceiveSlices"},
	{"strict RTSP client (own)", "each request in each state is answered as RFC 2326 says", rtsp, "TestEveryRequestInEveryState"},
	{"systemd", "starts and reloads the installed service", program, "TestReloadsBySystemd"},
	{"UCX", "a receiver in C with libucp gets the frames and their CRCs", ucx + "/frames", "TestAReceiverInCGetsTheFrames"},
	{"UCX", "releases of Debian 12 and 13 exchange frames, both ways", program, "TestReleasesOfUCX"},
	{"VLC", "shows MP4 files of H.264 and JPEG: whole, growing, and cut at random bytes", mp4, "TestVLCOpensFiles"},
	{"x264", "its pictures, sent by GStreamer, are received unit by unit", program, "TestH264OfOthers"},
	{"yaml-language-server", "shows the schema's descriptions, tells good files from bad", program, "TestSchemaInEditors"},
	{"zsh", "completes commands", program, "TestZshCompletes"},
}
