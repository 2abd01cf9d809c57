// SPDX-License-Identifier: Apache-2.0

module github.com/tegracast/tegracast/.ci/tools

go 1.26.0

tool (
	github.com/golangci/misspell/cmd/misspell
	github.com/polyfloyd/go-errorlint
	golang.org/x/tools/cmd/deadcode
)

require golang.org/x/tools v0.52.0

require (
	github.com/golangci/misspell v0.8.0 // indirect
	github.com/polyfloyd/go-errorlint v1.8.0 // indirect
	golang.org/x/mod v0.42.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/telemetry v0.0.0-20261009151841-97e8ea77aa2a // indirect
)
