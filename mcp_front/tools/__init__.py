"""The tools of FMSG-007 and ours."""
