package guest

// roles are what this program does as a child of a test, by $GUEST_ROLE.
var roles = map[string]func(){}
