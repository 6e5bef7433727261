# SPDX-License-Identifier: Apache-2.0
# A background job and a pipeline of loops; each word is answered when both were seen to go on.
words=
(while :; do sleep 0.05; done) & job=$!
(i=0; while :; do i=$((i + 1)); echo $i; sleep 0.01; done) | while read -r x; do echo "$x" >/tmp/last; done & pipe=$!
while [ ! -s /tmp/last ]; do sleep 0.01; done
echo ready
while read -r word; do
	was=$(cat /tmp/last)
	while now=$(cat /tmp/last); [ "${now:-0}" -le "${was:-0}" ]; do sleep 0.01; done
	words="$words $word"
	kill -0 $job && kill -0 $pipe && [ "$(jobs -rp | wc -l)" = 2 ] && echo "$words"
done
