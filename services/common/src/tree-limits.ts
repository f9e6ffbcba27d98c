/** The longest way up that is walked. */
export const walkMax = 1_024;

/** How deep a node that is created, moved or restored may lie; the root's children lie 1 deep. */
export const depthMax = 128;
