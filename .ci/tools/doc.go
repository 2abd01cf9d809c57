// SPDX-License-Identifier: Apache-2.0

// Package tools checks the tree as a whole: it finds, for instance, code that no program reaches, code for tests in
// programs, lines that are too long, and packages whose files use one another in circles. It is a separate module, so
// that the main module does not depend on the linters that it names as tools.
package tools
