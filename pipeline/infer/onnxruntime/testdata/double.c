// SPDX-License-Identifier: Apache-2.0
//
// A double of ONNX Runtime. It writes each call, with its texts and numbers, into the file LOG, and refuses the call whose
// name is REFUSED. Its table has no other functions than these.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <onnxruntime/onnxruntime_c_api.h>

#ifndef REFUSED
#define REFUSED ""
#endif

static void say(const char *line)
{
	FILE *f = fopen(LOG, "a");

	fprintf(f, "%s\n", line);
	fclose(f);
}

#define SAY(...) do { char line_[512]; snprintf(line_, sizeof(line_), __VA_ARGS__); say(line_); } while (0)

struct OrtStatus { OrtErrorCode code; const char *text; };

static OrtStatusPtr status(const char *call)
{
	OrtStatusPtr s;

	if (strcmp(call, REFUSED))
		return NULL;
	s = malloc(sizeof(*s));
	s->code = ORT_EP_FAIL;
	s->text = "no GPU\x1b[2J\nhere";
	return s;
}

static OrtErrorCode get_code(const OrtStatus *s) { return s->code; }
static const char *get_message(const OrtStatus *s) { return s->text; }
static void release_status(OrtStatus *s) { say("ReleaseStatus"); free(s); }

// Objects are counted: a name and the number of those that live.
static int live;
#define OBJECT(type) (live++, (type *)malloc(64))
#define MAKE(call, type) do { OrtStatusPtr s_ = status(call); if (!s_) *out = OBJECT(type); return s_; } while (0)
#define RELEASE(type) static void release_##type(Ort##type *o) { if (o) { live--; free(o); SAY("Release" #type " %d", live); } }
RELEASE(Env) RELEASE(MemoryInfo) RELEASE(Session) RELEASE(RunOptions) RELEASE(TypeInfo) RELEASE(TensorTypeAndShapeInfo)
RELEASE(SessionOptions) RELEASE(IoBinding) RELEASE(TensorRTProviderOptionsV2) RELEASE(CUDAProviderOptionsV2)

struct OrtValue { float *data; int own; float space[4]; };
static void release_Value(OrtValue *v) { live--; free(v); SAY("ReleaseValue %d", live); }

static OrtStatusPtr create_env(OrtLoggingLevel l, const char *id, OrtEnv **out) { SAY("CreateEnv %d %s", l, id); MAKE("CreateEnv", OrtEnv); }
static OrtStatusPtr no_telemetry(const OrtEnv *e) { (void)e; say("DisableTelemetryEvents"); return NULL; }
static OrtStatusPtr create_options(OrtSessionOptions **out) { say("CreateSessionOptions"); *out = OBJECT(OrtSessionOptions); return NULL; }
static OrtStatusPtr severity(OrtSessionOptions *o, int n) { (void)o; SAY("SetSessionLogSeverityLevel %d", n); return NULL; }
static OrtStatusPtr level(OrtSessionOptions *o, GraphOptimizationLevel n) { (void)o; SAY("SetSessionGraphOptimizationLevel %d", n); return NULL; }
static OrtStatusPtr intra(OrtSessionOptions *o, int n) { (void)o; SAY("SetIntraOpNumThreads %d", n); return NULL; }
static OrtStatusPtr inter(OrtSessionOptions *o, int n) { (void)o; SAY("SetInterOpNumThreads %d", n); return NULL; }
static OrtStatusPtr entry(OrtSessionOptions *o, const char *k, const char *v) { (void)o; SAY("AddSessionConfigEntry %s=%s", k, v); return NULL; }
static OrtStatusPtr dimension(OrtSessionOptions *o, const char *name, int64_t n) { (void)o; SAY("AddFreeDimensionOverrideByName %s=%lld", name, (long long)n); return NULL; }

static void update(const char *call, const char *const *k, const char *const *v, size_t n)
{
	char line[512] = "";

	for (size_t i = 0; i < n; i++)
		snprintf(line + strlen(line), sizeof(line) - strlen(line), " %s=%s", k[i], v[i]);
	SAY("%s%s", call, line);
}

static OrtStatusPtr create_cuda(OrtCUDAProviderOptionsV2 **out) { say("CreateCUDAProviderOptions"); *out = OBJECT(OrtCUDAProviderOptionsV2); return NULL; }
static OrtStatusPtr update_cuda(OrtCUDAProviderOptionsV2 *o, const char *const *k, const char *const *v, size_t n) { (void)o; update("UpdateCUDAProviderOptions", k, v, n); return status("UpdateCUDAProviderOptions"); }
static OrtStatusPtr append_cuda(OrtSessionOptions *s, const OrtCUDAProviderOptionsV2 *o) { (void)s; (void)o; say("SessionOptionsAppendExecutionProvider_CUDA_V2"); return status("SessionOptionsAppendExecutionProvider_CUDA_V2"); }
static OrtStatusPtr create_rt(OrtTensorRTProviderOptionsV2 **out) { say("CreateTensorRTProviderOptions"); MAKE("CreateTensorRTProviderOptions", OrtTensorRTProviderOptionsV2); }
static OrtStatusPtr update_rt(OrtTensorRTProviderOptionsV2 *o, const char *const *k, const char *const *v, size_t n) { (void)o; update("UpdateTensorRTProviderOptions", k, v, n); return NULL; }
static OrtStatusPtr append_rt(OrtSessionOptions *s, const OrtTensorRTProviderOptionsV2 *o) { (void)s; (void)o; say("SessionOptionsAppendExecutionProvider_TensorRT_V2"); return NULL; }

// The call READER refuses a folder that has an old engine: MARKER is that file.
#ifndef READER
#define READER "CreateSession"
#endif
static OrtStatusPtr status_of_engine(const char *call)
{
#ifdef MARKER
	FILE *f = strcmp(call, READER) ? NULL : fopen(MARKER, "r");

	if (f) {
		OrtStatusPtr s = malloc(sizeof(*s));

		fclose(f);
		s->code = ORT_EP_FAIL;
		s->text = "TensorRT EP could not deserialize engine from cache: " MARKER;
		return s;
	}
#endif
	return status(call);
}

static OrtStatusPtr create_session(const OrtEnv *e, const char *path, const OrtSessionOptions *o, OrtSession **out)
{
	OrtStatusPtr s = status_of_engine("CreateSession");

	(void)e; (void)o;
	SAY("CreateSession %s", path);
	if (!s)
		*out = OBJECT(OrtSession);
	return s;
}

static OrtStatusPtr count(const OrtSession *s, size_t *n) { (void)s; *n = 1; return NULL; }
static void *alloc(OrtAllocator *a, size_t n) { (void)a; live++; return malloc(n); }
static void freed(OrtAllocator *a, void *p) { (void)a; live--; free(p); }
static OrtAllocator allocator = {.version = 17, .Alloc = alloc, .Free = freed};
static OrtStatusPtr default_allocator(OrtAllocator **out) { *out = &allocator; return NULL; }
static OrtStatusPtr allocator_free(OrtAllocator *a, void *p) { a->Free(a, p); return NULL; }
static OrtStatusPtr in_name(const OrtSession *s, size_t i, OrtAllocator *a, char **out) { (void)s; (void)i; *out = strcpy(a->Alloc(a, 8), "in"); return NULL; }
static OrtStatusPtr out_name(const OrtSession *s, size_t i, OrtAllocator *a, char **out) { (void)s; (void)i; *out = strcpy(a->Alloc(a, 8), "out"); return NULL; }
static OrtStatusPtr type_info(const OrtSession *s, size_t i, OrtTypeInfo **out) { (void)s; (void)i; *out = OBJECT(OrtTypeInfo); return NULL; }
static OrtStatusPtr cast(const OrtTypeInfo *t, const OrtTensorTypeAndShapeInfo **out) { *out = (const void *)t; return NULL; }
static OrtStatusPtr element(const OrtTensorTypeAndShapeInfo *t, ONNXTensorElementDataType *out) { (void)t; *out = ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT; return NULL; }
static OrtStatusPtr dimensions(const OrtTensorTypeAndShapeInfo *t, size_t *n) { (void)t; *n = 2; return NULL; }
static OrtStatusPtr shape(const OrtTensorTypeAndShapeInfo *t, int64_t *d, size_t n) { (void)t; (void)n; d[0] = 1; d[1] = 4; return NULL; }
static OrtStatusPtr run_options(OrtRunOptions **out) { say("CreateRunOptions"); *out = OBJECT(OrtRunOptions); return NULL; }
static OrtStatusPtr cpu_memory(enum OrtAllocatorType t, enum OrtMemType m, OrtMemoryInfo **out) { SAY("CreateCpuMemoryInfo %d %d", t, m); *out = OBJECT(OrtMemoryInfo); return NULL; }
static OrtStatusPtr memory(const char *name, enum OrtAllocatorType t, int id, enum OrtMemType m, OrtMemoryInfo **out) { SAY("CreateMemoryInfo %s %d %d %d", name, t, id, m); *out = OBJECT(OrtMemoryInfo); return NULL; }
static OrtStatusPtr io(OrtSession *s, OrtIoBinding **out) { (void)s; say("CreateIoBinding"); MAKE("CreateIoBinding", OrtIoBinding); }
static OrtStatusPtr to_device(OrtIoBinding *b, const char *name, const OrtMemoryInfo *m) { (void)b; (void)m; SAY("BindOutputToDevice %s", name); return NULL; }

static OrtStatusPtr with_data(const OrtMemoryInfo *m, void *p, size_t bytes, const int64_t *d, size_t n, ONNXTensorElementDataType t, OrtValue **out)
{
	(void)m;
	SAY("CreateTensorWithDataAsOrtValue %zu bytes [%lld %lld] type %d", bytes, (long long)d[0], n > 1 ? (long long)d[1] : -1, t);
	*out = OBJECT(OrtValue);
	(*out)->data = p;
	return NULL;
}

static OrtStatusPtr bind_input(OrtIoBinding *b, const char *name, const OrtValue *v) { (void)b; (void)v; SAY("BindInput %s", name); return NULL; }
static OrtStatusPtr sync_in(OrtIoBinding *b) { (void)b; say("SynchronizeBoundInputs"); return NULL; }
static OrtStatusPtr sync_out(OrtIoBinding *b) { (void)b; say("SynchronizeBoundOutputs"); return NULL; }
static OrtStatusPtr run(OrtSession *s, const OrtRunOptions *o, const OrtIoBinding *b) { (void)s; (void)o; (void)b; say("RunWithBinding"); return status_of_engine("RunWithBinding"); }

static OrtStatusPtr outputs(const OrtIoBinding *b, OrtAllocator *a, OrtValue ***out, size_t *n)
{
	(void)b;
	*out = a->Alloc(a, sizeof(**out));
	(*out)[0] = OBJECT(OrtValue);
	for (int i = 0; i < 4; i++)
		(*out)[0]->space[i] = i;
	(*out)[0]->data = (*out)[0]->space;
	*n = 1;
	return NULL;
}

static OrtStatusPtr of_value(const OrtValue *v, OrtTensorTypeAndShapeInfo **out) { (void)v; *out = OBJECT(OrtTensorTypeAndShapeInfo); return NULL; }
static OrtStatusPtr data(OrtValue *v, void **out) { *out = v->data; return NULL; }

static OrtApi api = {
	.GetErrorCode = get_code, .GetErrorMessage = get_message, .ReleaseStatus = release_status, .CreateEnv = create_env,
	.DisableTelemetryEvents = no_telemetry, .CreateSessionOptions = create_options, .SetSessionLogSeverityLevel = severity,
	.SetSessionGraphOptimizationLevel = level, .SetIntraOpNumThreads = intra, .SetInterOpNumThreads = inter,
	.AddFreeDimensionOverrideByName = dimension, .AddSessionConfigEntry = entry, .CreateCUDAProviderOptions = create_cuda, .UpdateCUDAProviderOptions = update_cuda,
	.SessionOptionsAppendExecutionProvider_CUDA_V2 = append_cuda, .ReleaseCUDAProviderOptions = release_CUDAProviderOptionsV2,
	.CreateTensorRTProviderOptions = create_rt, .UpdateTensorRTProviderOptions = update_rt,
	.SessionOptionsAppendExecutionProvider_TensorRT_V2 = append_rt, .ReleaseTensorRTProviderOptions = release_TensorRTProviderOptionsV2,
	.CreateSession = create_session, .SessionGetInputCount = count, .SessionGetOutputCount = count, .SessionGetInputName = in_name,
	.SessionGetOutputName = out_name, .SessionGetInputTypeInfo = type_info, .SessionGetOutputTypeInfo = type_info,
	.CastTypeInfoToTensorInfo = cast, .GetTensorElementType = element, .GetDimensionsCount = dimensions, .GetDimensions = shape,
	.GetAllocatorWithDefaultOptions = default_allocator, .AllocatorFree = allocator_free, .CreateRunOptions = run_options,
	.CreateCpuMemoryInfo = cpu_memory, .CreateMemoryInfo = memory, .CreateIoBinding = io, .BindOutputToDevice = to_device,
	.CreateTensorWithDataAsOrtValue = with_data, .BindInput = bind_input, .SynchronizeBoundInputs = sync_in,
	.SynchronizeBoundOutputs = sync_out, .RunWithBinding = run, .GetBoundOutputValues = outputs, .GetTensorTypeAndShape = of_value,
	.GetTensorMutableData = data, .ReleaseEnv = release_Env, .ReleaseMemoryInfo = release_MemoryInfo, .ReleaseSession = release_Session,
	.ReleaseValue = release_Value, .ReleaseRunOptions = release_RunOptions, .ReleaseTypeInfo = release_TypeInfo,
	.ReleaseTensorTypeAndShapeInfo = release_TensorTypeAndShapeInfo, .ReleaseSessionOptions = release_SessionOptions,
	.ReleaseIoBinding = release_IoBinding,
};

static const OrtApi *get_api(uint32_t version)
{
#ifdef OLD
	return version > 100 ? &api : NULL;
#else
	return version == 17 ? &api : NULL;
#endif
}

static const char *get_version(void) { return "1.16.3"; }
static const OrtApiBase base = {get_api, get_version};

const OrtApiBase *OrtGetApiBase(void) { return &base; }
