/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: store/diskjob.c - the job `disk`: a sandbox's disk is there when it is over. */
#include "store/disk.h"
#include "store/layer.h"
#include "store/live.h"
#include "store/verbs.h"

int store_disk(struct job *job, json_t **ok, struct err *err)
{
	const char *id = job_id(job->request, "sandbox", err);
	struct disk_size size = { 0 };
	cleanup_fd int live = -1;
	uint64_t trees = 1;
	int rc = id == NULL ? -EINVAL : job_number(job->request, "bytes", 0, &size.bytes, err);

	if (rc == 0)
		rc = job_number(job->request, "inodes", 0, &size.inodes, err);
	if (rc == 0)
		rc = job_number(job->request, "trees", 1, &trees, err);
	if (rc < 0)
		return rc;
	if (size.bytes == 0 || trees == 0 || trees > LAYER_TREES)
		return err_raise(
			err, ERR_INVALID, "a disk has bytes, and 1 to %d trees", LAYER_TREES);
	live = store_live_create(job->store.pool, id, 1, 0);
	if (live < 0)
		return err_raise_sys(err, live, "make the live directory of sandbox '%s'", id);
	rc = disk_make(live, id, &size, (unsigned int)trees, err);
	if (rc == 0)
		*ok = json_object();
	return rc;
}
