// SPDX-License-Identifier: Apache-2.0

package cufile

import "fmt"

// A Status is a CUfileOpError (§3.1.3). Values up to baseError are invalid, except Success.
type Status int

const baseError = 5000 // CUFILEOP_BASE_ERR

// The status codes, by the names of cufile.h without CU_FILE_. 5021 and 5032 are not in the document.
const (
	Success                 Status = 0
	DriverNotInitialized    Status = 5001
	DriverInvalidProps      Status = 5002
	DriverUnsupportedLimit  Status = 5003
	DriverVersionMismatch   Status = 5004
	DriverVersionReadError  Status = 5005
	DriverClosing           Status = 5006
	PlatformNotSupported    Status = 5007
	IONotSupported          Status = 5008
	DeviceNotSupported      Status = 5009
	NVFSDriverError         Status = 5010
	CUDADriverError         Status = 5011
	CUDAPointerInvalid      Status = 5012
	CUDAMemoryTypeInvalid   Status = 5013
	CUDAPointerRangeError   Status = 5014
	CUDAContextMismatch     Status = 5015
	InvalidMappingSize      Status = 5016
	InvalidMappingRange     Status = 5017
	InvalidFileType         Status = 5018
	InvalidFileOpenFlag     Status = 5019
	DIONotSet               Status = 5020
	InvalidValue            Status = 5022
	MemoryAlreadyRegistered Status = 5023
	MemoryNotRegistered     Status = 5024
	PermissionDenied        Status = 5025
	DriverAlreadyOpen       Status = 5026
	HandleNotRegistered     Status = 5027
	HandleAlreadyRegistered Status = 5028
	DeviceNotFound          Status = 5029
	InternalError           Status = 5030
	NewFDFailed             Status = 5031
	NVFSSetupError          Status = 5033
	IODisabled              Status = 5034
)

// statusTexts describes the codes (§3.1.3), in the words of cufileop_status_error if it has any. 5035 to 5049 are not in
// the document, but in the cufile.h of later releases.
var statusTexts = map[Status]string{
	Success:                 "success",
	DriverNotInitialized:    "the driver is not open",
	DriverInvalidProps:      "invalid property",
	DriverUnsupportedLimit:  "a property is out of its range",
	DriverVersionMismatch:   "nvidia-fs is of another version than the library",
	DriverVersionReadError:  "the version of nvidia-fs cannot be read",
	DriverClosing:           "the driver is being closed",
	PlatformNotSupported:    "this platform is not supported",
	IONotSupported:          "this file is not supported",
	DeviceNotSupported:      "this GPU is not supported",
	NVFSDriverError:         "nvidia-fs refuses the call",
	CUDADriverError:         "the CUDA driver refuses the call",
	CUDAPointerInvalid:      "not a pointer to memory of a device",
	CUDAMemoryTypeInvalid:   "memory of a wrong type",
	CUDAPointerRangeError:   "the range goes beyond the allocation",
	CUDAContextMismatch:     "the memory is of another CUDA context",
	InvalidMappingSize:      "more memory than may be pinned",
	InvalidMappingRange:     "the range goes beyond the registered memory",
	InvalidFileType:         "neither a regular file nor a device",
	InvalidFileOpenFlag:     "opened with a flag that is not supported",
	DIONotSet:               "not opened with O_DIRECT",
	InvalidValue:            "invalid argument",
	MemoryAlreadyRegistered: "the memory is registered already",
	MemoryNotRegistered:     "the memory is not registered",
	PermissionDenied:        "access is denied",
	DriverAlreadyOpen:       "the driver is open already",
	HandleNotRegistered:     "the file is not registered",
	HandleAlreadyRegistered: "the file is registered already",
	DeviceNotFound:          "there is no such GPU",
	InternalError:           "internal error of the library",
	NewFDFailed:             "no new file descriptor",
	NVFSSetupError:          "nvidia-fs cannot be set up",
	IODisabled:              "disabled for this file by the configuration",
	5035:                    "the batch is not submitted",
	5036:                    "memory of the GPU cannot be pinned",
	5037:                    "the batch is full",
	5038:                    "there are no transfers in streams",
	5039:                    "a batch cannot be set up",
	5040:                    "a batch cannot be submitted",
	5041:                    "a batch cannot be asked",
	5042:                    "a batch cannot be canceled",
	5043:                    "no memory",
	5044:                    "the transfer has failed",
	5045:                    "memory cannot be registered",
	5046:                    "a table of the library cannot be changed",
	5047:                    "the CUDA context is not valid",
	5048:                    "nvidia-fs has failed",
	5049:                    "compatibility mode has no such batch",
}

// Error returns the text of the code (CUFILE_ERRSTR). errors.Is finds the Status in an error of this package that has
// one.
func (s Status) Error() string {
	if text, ok := statusTexts[s]; ok {
		return fmt.Sprintf("cuFile: %s (%d)", text, int(s))
	}
	return fmt.Sprintf("cuFile: status %d", int(s))
}

// An Error is a failed call. errors.Is finds its Status and the error that it wraps: a system call's errno, or CUDA's
// error.
type Error struct {
	Call   string // the cuFile function, such as cuFileDriverOpen, or another description of the call
	What   string // the file, the memory or the key; may be ""
	Status Status // Success if a transfer failed with an error of the kernel
	Why    error  // nil: the status is the whole reason
}

func (e *Error) Error() string {
	text := e.Call + ": "
	if e.What != "" {
		text += e.What + ": "
	}
	switch {
	case e.Status == Success:
		return text + e.Why.Error()
	case e.Why == nil:
		return text + e.Status.Error()
	}
	return text + e.Status.Error() + ": " + e.Why.Error()
}

// Is reports whether target is the error's Status.
func (e *Error) Is(target error) bool { return e.Status != Success && target == error(e.Status) }

func (e *Error) Unwrap() error { return e.Why }
