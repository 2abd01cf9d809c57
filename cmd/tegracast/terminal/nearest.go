// SPDX-License-Identifier: Apache-2.0

package terminal

// Nearest returns the element of words that was most likely meant by typed: the one that needs the fewest insertions,
// deletions, replacements and swaps of neighbouring letters. It may need at most one of them, and one more for every
// three letters of typed. An element that begins with typed counts as needing one, unless typed is a single letter.
// Nearest returns "" if there is none.
func Nearest(typed string, words []string) string {
	best, least := "", len(typed)/3+1
	for _, w := range words {
		d := distance(typed, w)
		if len(typed) > 1 && len(w) > len(typed) && w[:len(typed)] == typed {
			d = 1
		}
		if d < least || d == least && best == "" {
			best, least = w, d
		}
	}
	return best
}

// distance returns the optimal string alignment distance of two words.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		for j := range rows[i] {
			switch {
			case i == 0 || j == 0:
				rows[i][j] = i + j
				continue
			case a[i-1] == b[j-1]:
				rows[i][j] = rows[i-1][j-1]
			default:
				rows[i][j] = 1 + min(rows[i-1][j-1], rows[i-1][j], rows[i][j-1])
			}
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
